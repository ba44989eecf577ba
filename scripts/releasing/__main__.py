"""The steps of `scripts/release`; it tells how it is called."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from scripts.releasing.archives import Archives, build, build_backend, content_faults
from scripts.releasing.commands import ROOT, ReleaseError, environment, git, run
from scripts.releasing.evidence import Result, evidence_page, sums
from scripts.releasing.index import Index, index_of_pip, settings_of_pip, variables_of_pip
from scripts.releasing.installs import (
    PROJECT,
    Environments,
    Trial,
    commands_of,
    free_port,
    installs,
    s3_server,
    sample_of,
)
from scripts.releasing.versions import version_faults

_PAGE: Final = "docs/evidence/release.md"
_SERVER_PAGE: Final = "docs/ci-without-s3.md"
_OF_SBOM: Final = f"{PROJECT}[cli,s3]"
_TOOLS: Final = ("pip", "build", "twine", "cyclonedx-bom")


class Commit(NamedTuple):
    """The commit that is released, with its table `project` of pyproject.toml."""

    hash: str
    tag: str
    project: dict[str, Any]

    @property
    def version(self) -> str:
        """The version of pyproject.toml."""
        return str(self.project["version"])


def checked_commit(*, tag_required: bool) -> Commit:
    """Return the commit of the checkout.

    Raises:
        ReleaseError: the checkout is not clean, or its versions differ.
    """
    if changed := git("status", "--porcelain", "--", ".", ":!docs/evidence").decode():
        raise ReleaseError(f"the checkout has changes; commit or remove them:\n{changed}")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tags = git("tag", "--points-at", "HEAD").decode().split()
    changelog = (ROOT / "CHANGELOG.md").read_text()
    faults = list(version_faults(project["version"], changelog, tags, tag_required=tag_required))
    if faults:
        raise ReleaseError("\n".join(faults))
    tag = f"v{project['version']}"
    return Commit(git("rev-parse", "HEAD").decode().strip(), tag if tag in tags else "", project)


def settings(work: Path) -> tuple[dict[str, str], str]:
    """Return the settings of the user's pip, and the URL of its index."""
    pip, env = (sys.executable, "-m", "pip"), {**os.environ, "COLUMNS": "1000"}
    listing = run(*pip, "config", "list", cwd=work, env=env)
    return settings_of_pip(listing), index_of_pip(run(*pip, "install", "--help", cwd=work, env=env))


def tools(work: Path, project: Mapping[str, Any], env: Mapping[str, str]) -> tuple[Path, list[str]]:
    """Install the extra `release`; return the directory of its programs, and each tool with its version."""
    run(sys.executable, "-m", "venv", work / "tools", cwd=work, env=env)
    programs = work / "tools/bin"
    run(programs / "pip", "install", "-q", *project["optional-dependencies"]["release"], cwd=work, env=env)
    listed = json.loads(run(programs / "pip", "list", "--format=json", cwd=work, env=env))
    return programs, [f"{each['name']} {each['version']}" for each in listed if each["name"] in _TOOLS]


def tried(commit: Commit, pages: Mapping[str, str], environments: Environments) -> list[Result]:
    """Try each installation of the docs and each extra.

    Raises:
        ReleaseError: some failed; all are tried before.
    """
    results, failures = [], []
    with s3_server(environments, pages[_SERVER_PAGE], free_port()) as s3:
        trial = Trial(commit.version, sample_of(pages["README.md"]), s3)
        for install in installs(pages, commit.project["optional-dependencies"]):
            try:
                with environments.fresh(install.words) as (programs, directory):
                    ran = trial.run(install, programs, directory)
            except ReleaseError as error:
                failures.append(f"pip install {install}: {error}")
                say(f"pip install {install}: FAILED")
            else:
                results.append(Result(str(install), install.pages, tuple(ran)))
                say(f"pip install {install}: {', '.join(ran)}")
    if failures:
        raise ReleaseError("\n\n".join(failures))
    return results


def bill_of_materials(environments: Environments, programs: Path, file: Path, env: Mapping[str, str]) -> None:
    """Write the SBOM of an environment with the command line and S3."""
    with environments.fresh([_OF_SBOM]) as (installed, directory):
        command = (programs / "cyclonedx-py", "environment", "--output-reproducible", "--of", "JSON", "-o", file)
        project = ("--pyproject", ROOT / "pyproject.toml", "--mc-type", "library")
        run(*command, *project, installed / "python", cwd=directory, env=env)


def release(commit: Commit, work: Path) -> None:
    """Build the archives of a commit, check and try them, and write dist/ and the page of evidence."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    pages = {str(file.relative_to(ROOT)): file.read_text() for file in files}
    configured, elsewhere = settings(work)
    index = Index(PROJECT, commit.project["requires-python"], elsewhere, {})
    with index.serving() as url:
        variables = variables_of_pip(url, configured)
        env = environment({**variables, "SOURCE_DATE_EPOCH": git("show", "-s", "--format=%ct").decode().strip()})
        programs, versions = tools(work, commit.project, env)
        say(f"tools: {', '.join(versions)}")
        archives = build(programs / "python", work, commit.hash, env)
        say("built twice, and the wheel from the sdist: byte-equal")
        check(archives, commit, programs, env)
        index.files.update({file.name: file.read_bytes() for file in archives})
        environments = Environments(programs / "pip", work, variables)
        sbom = work / f"{archives.wheel.name.rsplit('-', 3)[0]}.cdx.json"
        bill_of_materials(environments, programs, sbom, env)
        say("SBOM")
        results = tried(commit, pages, environments)
    (server,) = commands_of(pages[_SERVER_PAGE], "ministack")
    versions += [f"Python {platform.python_version()}", build_backend(archives.wheel), server[0].replace("==", " ")]
    publish(commit, [*archives, sbom], versions, results)


def check(archives: Archives, commit: Commit, programs: Path, env: Mapping[str, str]) -> None:
    """Check the metadata and the contents of the archives.

    Raises:
        ReleaseError: one is wrong.
    """
    run(programs / "twine", "check", "--strict", *archives, cwd=programs, env=env)
    if faults := list(content_faults(archives, commit.project)):
        raise ReleaseError("\n".join(faults))
    for file in archives:
        say(f"{file.name}: {file.stat().st_size:,} bytes, contents as they must be")


def publish(commit: Commit, files: list[Path], versions: list[str], results: list[Result]) -> None:
    """Write dist/ and the page of evidence."""
    page = evidence_page(commit.hash, f"{datetime.now(UTC):%F}", commit.tag, files, versions, results)
    target = ROOT / "dist"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for file in files:
        shutil.copyfile(file, target / file.name)
    (target / "SHA256SUMS").write_text(sums(files))
    (ROOT / _PAGE).write_text(page)


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def main(words: list[str]) -> None:
    """Make the release, or say what is wrong and exit with 1."""
    if words not in ([], ["--check"]):
        sys.exit("usage: scripts/release [--check]")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("no release: stopped"))  # so that servers and copies are removed
    try:
        with tempfile.TemporaryDirectory() as work:
            release(checked_commit(tag_required=not words), Path(work))
    except ReleaseError as error:
        sys.exit(f"no release: {error}")
    say(f"all green: dist/ and {_PAGE} are written")


if __name__ == "__main__":
    main(sys.argv[1:])
