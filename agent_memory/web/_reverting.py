"""Takes one change of a text back and keeps the later ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent_memory.web._compare import blocks_of


def reverted(old: str, new: str, now: str) -> str | None:
    """The current text without the change from one text to another.

    Lines that the change removed follow the line that they followed; if it is gone, they precede the line that they
    preceded.

    Returns:
        None if the lines that the change made, or the lines beside those that it removed, were changed since, or if
        lines that it removed are there again.
    """
    before, after, current = old.split("\n"), new.split("\n"), now.split("\n")
    change, left = blocks_of(before, after)
    since, left_since = blocks_of(after, current)
    if any(left) or any(left_since):
        return None  # too much differs to be compared
    places = {j + n: m + n for tag, j, end, m, _ in since if tag == "equal" for n in range(end - j)}
    for tag, i, k, start, end in reversed(change):
        if tag == "equal":
            continue
        place = _place(places, start, end)
        if place is None or (start == end and _is_there(before[i:k], current, places, start)):
            return None
        current[place : place + end - start] = before[i:k]
    return "\n".join(current)


def _is_there(lines: Sequence[str], current: Sequence[str], places: Mapping[int, int], at: int) -> bool:
    """Whether one of some removed lines is there again, between the lines that were beside them."""
    first = places[at - 1] + 1 if at - 1 in places else max(0, places[at] - len(lines))
    last = places.get(at, first + len(lines))
    return any(line.strip() and line in lines for line in current[first:last])


def _place(places: Mapping[int, int], start: int, end: int) -> int | None:
    """Where lines of the changed text are in the current one; of no lines, the place between their neighbours."""
    if start == end:
        return places[start - 1] + 1 if start - 1 in places else places.get(end)
    place = places.get(start)
    if place is None or any(places.get(start + n) != place + n for n in range(end - start)):
        return None
    return place
