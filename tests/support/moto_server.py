"""moto's server, one request at a time.

By itself it checks a precondition before it writes, so the race of a trial may refuse it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

from moto import server

_run: Callable[..., None] = vars(server)["run_simple"]
_turn = threading.Lock()


def _one_at_a_time(host: str, port: int, app: Any, **options: Any) -> None:
    def answered(environ: Any, start_response: Any) -> list[bytes]:
        with _turn, closing(app(environ, start_response)) as parts:
            return [b"".join(parts)]

    _run(host, port, answered, **options)


if __name__ == "__main__":
    server.__dict__["run_simple"] = _one_at_a_time
    server.main()
