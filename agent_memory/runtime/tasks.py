"""Coroutines at once, of which the first error ends the others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def gather_or_cancel(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines at once; results in order, or the first error, raised when all have ended.

    An `asyncio.TaskGroup` that fails leaves its task counted as cancelled, and before Python 3.11.3 a timeout that ends
    later in that task is a `CancelledError` then.
    """
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
