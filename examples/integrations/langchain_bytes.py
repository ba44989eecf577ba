"""A cache of embeddings that survives the process; runs without an API key, with an embedder that counts letters.

pip install 'agent-memory-files[langchain,s3]' langchain-classic
python langchain_bytes.py                          # on disk, in ./memories
python langchain_bytes.py s3://my-bucket/memories  # on S3; credentials as for any AWS tool
"""

import sys

from langchain_classic.embeddings import CacheBackedEmbeddings
from langchain_core.embeddings import Embeddings

from agent_memory import AgentMemoryService
from agent_memory.integrations.langchain import AgentMemoryByteStore

ROOT = sys.argv[1] if len(sys.argv) > 1 else "./memories"
TEXTS = ["likes green tea", "walks at noon", "likes green tea"]


class LetterCounts(Embeddings):
    """Stands for a model: the vector of a text is how often it has each vowel."""

    asked = 0

    def embed_documents(self, texts):
        self.asked += len(texts)
        return [[float(text.count(vowel)) for vowel in "aeiou"] for text in texts]

    def embed_query(self, text):
        return self.embed_documents([text])[0]


for session in ("first", "second"):
    with AgentMemoryService(ROOT) as service:
        store = AgentMemoryByteStore(service.agent("ann").subtree("embeddings"))
        model = LetterCounts()
        cached = CacheBackedEmbeddings.from_bytes_store(model, store, namespace="letters-", key_encoder="sha256")
        vectors = cached.embed_documents(TEXTS)
        keys = list(store.yield_keys(prefix="letters-"))
    print(f"{session} session: {len(vectors)} vectors, {model.asked} by the model, {len(keys)} remembered")
