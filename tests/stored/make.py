"""Write the stores of this release as bytes: on disk, and on S3 by a server that is given.

    python -m tests.stored.make RELEASE ENDPOINT_URL

The server has the bucket "memories", and the keys are those of `tests.support.servers`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from base64 import b64encode
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from agent_memory.backend._host_files import ORIGIN_ATTRIBUTE
from tests.stored.contents import DIRECTORY, fill
from tests.support.servers import S3Server


def files_on_disk(root: Path) -> list[dict[str, Any]]:
    """The files of a store on disk."""
    found = []
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        file = {"name": path.relative_to(root).as_posix(), "data": b64encode(path.read_bytes()).decode()}
        with suppress(OSError):
            file["origin"] = os.getxattr(path, ORIGIN_ATTRIBUTE).decode()
        found.append(file)
    return found


def objects_of(server: S3Server, prefix: str) -> list[dict[str, Any]]:
    """The objects of a store on S3."""
    found = []
    with closing(server.client("s3")) as s3:
        for each in s3.list_objects_v2(Bucket="memories", Prefix=f"{prefix}/")["Contents"]:
            reply = s3.get_object(Bucket="memories", Key=each["Key"])
            name = each["Key"].removeprefix(f"{prefix}/")
            data = b64encode(reply["Body"].read()).decode()
            found.append({"name": name, "data": data, "metadata": reply["Metadata"]})
    return found


def main(release: str, endpoint: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        fill(Path(root).as_uri(), {})
        save(f"{release}-disk", files_on_disk(Path(root)))
    server = S3Server(endpoint)
    url = server.new_url()
    fill(url, server.options)
    save(f"{release}-s3", objects_of(server, url.removeprefix("s3://memories/")))


def save(name: str, files: list[dict[str, Any]]) -> None:
    file = DIRECTORY / f"{name}.json"
    lines = ",\n".join(json.dumps(each, ensure_ascii=True) for each in files)
    file.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
