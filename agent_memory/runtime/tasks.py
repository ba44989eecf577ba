"""Runs coroutines concurrently; the first error cancels the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")


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


async def map_or_cancel(function: Callable[[T], Awaitable[U]], items: Iterable[T], limit: int) -> list[U]:
    """As `gather_or_cancel`, for a function of each item, at most ``limit`` at once."""
    slots = asyncio.Semaphore(limit)

    async def one(item: T) -> U:
        async with slots:
            return await function(item)

    return await gather_or_cancel(one(item) for item in items)
