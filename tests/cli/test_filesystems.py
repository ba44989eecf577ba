"""doctor names filesystems that may pass no locks on, and tries the locks of a local store with two processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from agent_memory.cli import inspection
from agent_memory.cli.inspection import filesystem_at, filesystem_warning
from agent_memory.cli.probes import ScratchTree, Sight, tried_in_two_processes
from agent_memory_local import LocalBackend
from tests.faults.filesystems import filesystem_of
from tests.support import sizes
from tests.support.loops import looped
from tests.support.sizes import also

Run = Callable[..., Result]
MOUNTS = """\
1 0 254:0 / / rw,relatime - ext4 /dev/vda rw
2 1 0:30 / /mnt/share rw - virtiofs share rw
3 1 0:31 / /mnt/share/below rw shared:1 - tmpfs tmpfs rw
4 1 0:32 / /mnt/with\\040space rw - fuse.sshfs host: rw
5 1 0:33 / /mnt/twice rw - ext4 /dev/vdb rw
6 1 0:34 / /mnt/twice rw - 9p drive rw
not a mount
"""


@pytest.mark.parametrize(("path", "kind"), [
    ("/home/ann", "ext4"), ("/mnt/share", "virtiofs"), ("/mnt/share/a/b", "virtiofs"), ("/mnt/shared", "ext4"),
    ("/mnt/share/below/a", "tmpfs"), ("/mnt/with space/a", "fuse.sshfs"), ("/mnt/twice/a", "9p"),
])  # fmt: skip
def test_the_filesystem_of_a_path_is_that_of_the_last_mount_above_it(path: str, kind: str) -> None:
    assert filesystem_at(Path(path), MOUNTS) == kind


def test_the_filesystem_of_a_real_path_is_found(tmp_path: Path) -> None:
    assert filesystem_at(tmp_path.resolve(), Path("/proc/self/mountinfo").read_text()) == filesystem_of(tmp_path)


@pytest.mark.usefixtures("quick_doctor")
@pytest.mark.parametrize("kind", ["9p", *also(["fuse", "fuse.sshfs", "fuse.rclone", "virtiofs", "cifs", "fakeowner"])])
def test_doctor_names_a_filesystem_that_may_pass_no_locks_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 0:30 / {tmp_path}/share rw - {kind} share rw\n")
    monkeypatch.setattr(inspection, "_MOUNTS", mounts)
    result = run("--url", "share/store", "doctor", "--rounds", "1")
    assert result.exit_code == 0, result.output
    assert f"Warning: {kind} may pass no locks on to other mounts" in result.stdout
    assert "Verdict: as far as it was tested on this mount" in result.stdout
    document = json.loads(run("--url", f"file://{tmp_path}/share/store", "--json", "doctor", "--rounds", "1").stdout)
    assert document["filesystem"].startswith(f"{kind} may pass no locks on")
    assert json.loads(run("--url", "store", "--json", "doctor", "--rounds", "1").stdout)["filesystem"] is None


@looped("kind", ["fuse", "fuse.sshfs", "fuse.rclone", "9p", "virtiofs", "cifs", "fakeowner"])
def test_a_filesystem_that_may_pass_no_locks_on_has_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "mountinfo").write_text(f"2 1 0:30 / {tmp_path}/share rw - {kind} share rw\n")
    monkeypatch.setattr(inspection, "_MOUNTS", tmp_path / "mountinfo")
    assert str(filesystem_warning(tmp_path / "share")).startswith(f"{kind} may pass no locks on")


def test_a_store_that_is_not_on_disk_has_no_warning() -> None:
    assert filesystem_warning(None) is None


def test_doctor_tries_a_local_store_with_two_processes(run: Run, tmp_path: Path) -> None:
    result = run("doctor", "--rounds", "1")
    assert result.exit_code == 0
    assert "two processes lost none of" in " ".join(result.stdout.split())
    assert not list((tmp_path / ".agent-memory").rglob("counted.md"))


def test_edits_that_are_lost_between_two_processes_break_the_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(scratch: ScratchTree, name: str) -> None:
        scratch.write(name, str(int(scratch.read(name) or b"0") + 1).encode())

    monkeypatch.setattr(ScratchTree, "add_one", blind)  # in this process only
    sights: list[Sight] = []
    while len(sights) < 3 and (sizes.is_long or "no" not in [sight.seen for sight in sights]):
        sights.append(tried_in_two_processes(LocalBackend(tmp_path), str(tmp_path), {}))
    seen = {sight.seen for sight in sights}  # "failed" says nothing about the promise, as the next test shows
    assert "no" in seen, sights
    assert "yes" not in seen, sights


def test_a_second_process_that_fails_says_nothing_about_the_promise(tmp_path: Path) -> None:
    sight = tried_in_two_processes(LocalBackend(tmp_path), "nosuch://a", {})
    assert (sight.seen, "the other one failed" in sight.detail) == ("failed", True)
