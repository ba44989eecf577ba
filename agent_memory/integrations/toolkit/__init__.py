"""The parts that the adapters of agent frameworks share, also for adapters of other packages."""

from agent_memory.core.one_file import raise_failed
from agent_memory.core.sync_facade import step, sync_facade
from agent_memory.integrations.toolkit._cache import ReadCache
from agent_memory.integrations.toolkit._files import (
    attempt_each,
    done_each,
    found_each,
    map_each,
    read_each,
    remove,
    warn_left_out,
)
from agent_memory.integrations.toolkit._json_lines import (
    Records,
    append_records,
    from_json,
    record_line,
    records,
    to_json,
    without_mark,
)
from agent_memory.integrations.toolkit._memories import (
    AnyMemory,
    async_view,
    checked_bytes,
    checked_id,
    mapped_errors,
    sync_view,
    unusable,
)
from agent_memory.integrations.toolkit._names import PathTexts, known_text, record_segment, refusal, segment_text
from agent_memory.integrations.toolkit._tools import ModelTool, model_tools
from agent_memory.tools._each_file import each_file
from agent_memory.tools._model_text import ModelText, overwriting

__all__ = [
    "AnyMemory",
    "ModelText",
    "ModelTool",
    "PathTexts",
    "ReadCache",
    "Records",
    "append_records",
    "async_view",
    "attempt_each",
    "checked_bytes",
    "checked_id",
    "done_each",
    "each_file",
    "found_each",
    "from_json",
    "known_text",
    "map_each",
    "mapped_errors",
    "model_tools",
    "overwriting",
    "raise_failed",
    "read_each",
    "record_line",
    "record_segment",
    "records",
    "refusal",
    "remove",
    "segment_text",
    "step",
    "sync_facade",
    "sync_view",
    "to_json",
    "unusable",
    "warn_left_out",
    "without_mark",
]
