"""The two archives of a release: how they are built, compared and looked through."""

from __future__ import annotations

import configparser
import hashlib
import io
import re
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from scripts.releasing.commands import ReleaseError, git, run

PACKAGES: Final = {
    "agent_memory",
    "agent_memory_fsspec",
    "agent_memory_local",
    "agent_memory_memory",
    "agent_memory_obstore",
    "agent_memory_s3",
}
"""Each top-level name that the wheel installs."""
_FOREIGN: Final = {"benchmarks", "docs", "examples", "scripts", "tests"}
_IN_SDIST: Final = ("LICENSE", "PKG-INFO", "README.md", "pyproject.toml")


class Archives(NamedTuple):
    """The files of a release."""

    wheel: Path
    sdist: Path


def build(python: Path, work: Path, commit: str, env: Mapping[str, str]) -> Archives:
    """Build both archives twice, each from a copy of the commit, and the wheel from the sdist once more.

    Args:
        python: the interpreter that has the package `build`.
        work: a directory for the copies.
        commit: the commit; its date becomes that of all members.
        env: the variables of pip, which installs the build backend.

    Raises:
        ReleaseError: a build failed, or two are not byte-equal; with the members that differ.
    """
    dated = {**env, "SOURCE_DATE_EPOCH": git("show", "-s", "--format=%ct", commit).decode().strip()}
    first, second = (_built(python, work / name, commit, dated) for name in ("first", "second"))
    unpacked = work / "unpacked"
    with tarfile.open(first.sdist) as files:
        files.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    run(python, "-m", "build", "--wheel", "--outdir", unpacked / "dist", source, cwd=work, env=dated)
    (again,) = (unpacked / "dist").iterdir()
    for one, other in ((first.wheel, second.wheel), (first.sdist, second.sdist), (first.wheel, again)):
        if names := differing(one, other):
            raise ReleaseError(f"two builds of {one.name} differ in: {', '.join(names)}")
    return first


def _built(python: Path, directory: Path, commit: str, env: Mapping[str, str]) -> Archives:
    source, target = directory / "source", directory / "dist"
    source.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit))) as files:
        files.extractall(source, filter="data")
    run(python, "-m", "build", "--sdist", "--wheel", "--outdir", target, source, cwd=directory, env=env)
    (wheel,), (sdist,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return Archives(wheel, sdist)


def differing(one: Path, other: Path) -> list[str]:
    """Return the names of the members that differ between two archives; [] only if the files are byte-equal."""
    if one.read_bytes() == other.read_bytes():
        return []
    ours, theirs = members(one), members(other)
    names = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    return names or ["the order or the compression of the members"]


def members(archive: Path) -> dict[str, tuple[object, ...]]:
    """Return the members of a zip or tar file by their names, each as its facts and the hash of its content."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {
                each.filename: (each.date_time, each.external_attr, _sha256(wheel.read(each)))
                for each in wheel.infolist()
            }
    with tarfile.open(archive) as sdist:
        return {
            each.name: (each.mtime, each.mode, each.uid, each.gid, each.uname, each.gname, _content(sdist, each))
            for each in sdist
        }


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = archive.extractfile(member)
    return _sha256(file.read()) if file else f"{member.type!r} {member.linkname}"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def content_faults(archives: Archives, project: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the archives lack or have too much; ``project`` is that table of pyproject.toml."""
    names = list(members(archives.wheel))
    info = f"{archives.wheel.name.rsplit('-', 3)[0]}.dist-info"
    if (tops := {name.split("/")[0] for name in names}) != PACKAGES | {info}:
        yield f"the wheel installs {', '.join(sorted(tops ^ (PACKAGES | {info})))}: too much, or missing"
    for name in names:
        if _FOREIGN & set(name.split("/")):
            yield f"the wheel must not have {name}"
    for name in (f"{info}/licenses/LICENSE", *(f"{package}/py.typed" for package in sorted(PACKAGES))):
        if name not in names:
            yield f"the wheel lacks {name}"
    if entry_points(archives.wheel, info) != _declared_entry_points(project):
        yield "the entry points of the wheel are not those of pyproject.toml"
    top = archives.sdist.name.removesuffix(".tar.gz")
    for name in sorted({f"{top}/{name}" for name in _IN_SDIST} - members(archives.sdist).keys()):
        yield f"the sdist lacks {name}"


def entry_points(wheel: Path, info: str) -> dict[str, dict[str, str]]:
    """Return the entry points of a wheel by their groups; {} if it has none."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    with zipfile.ZipFile(wheel) as archive:
        if f"{info}/entry_points.txt" in archive.namelist():
            parser.read_string(archive.read(f"{info}/entry_points.txt").decode())
    return {group: dict(parser[group]) for group in parser.sections()}


def _declared_entry_points(project: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    return {"console_scripts": project["scripts"], **project["entry-points"]}


def build_backend(wheel: Path) -> str:
    """Return the name and the version of the program that wrote a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/WHEEL"))
        generator = re.search(r"^Generator: (.*)$", archive.read(name).decode(), re.MULTILINE)
    return generator[1] if generator else "unknown"
