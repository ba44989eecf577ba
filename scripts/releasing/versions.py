"""The version of a release: it stands in pyproject.toml; the changelog and the tag repeat it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

_HEADING: Final = re.compile(r"^## (.*)$", re.MULTILINE)
_SECTION: Final = re.compile(r"(\S+) - \d{4}-\d\d-\d\d")


def version_faults(version: str, changelog: str, tags: Iterable[str], *, tag_required: bool) -> Iterator[str]:
    """Yield what contradicts the version of pyproject.toml.

    Args:
        version: the version of pyproject.toml.
        changelog: the text of CHANGELOG.md.
        tags: the tags of the commit; those that do not begin with "v" and a digit count for nothing.
        tag_required: whether a missing tag is a fault, too.
    """
    heading = _HEADING.search(changelog)
    section = _SECTION.fullmatch(heading[1]) if heading else None
    if section is None or section[1] != version:
        found = repr(heading[1]) if heading else "missing"
        yield f"the top section of CHANGELOG.md is {found}: it must be '{version} - YYYY-MM-DD', as in pyproject.toml"
    of_versions = [tag for tag in tags if re.match(r"v\d", tag)]
    for tag in of_versions:
        if tag != f"v{version}":
            yield f"the commit has the tag {tag}, but pyproject.toml has the version {version}: set one of them right"
    if tag_required and not of_versions:
        yield f"the commit has no tag: set it (git tag -s v{version}), or run scripts/release --check"
