"""`gather_or_cancel`: runs coroutines concurrently; the first error cancels the others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def gather_or_cancel(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently; return results in order, or raise the first error after all have ended.

    `asyncio.TaskGroup` is not used: when it fails, its task still counts as cancelled, and before Python 3.11.3 a
    later timeout in that task raises `CancelledError` then.
    """
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
