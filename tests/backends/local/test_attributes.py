"""A file that is replaced keeps its owner, its permissions and its attributes, as far as the user may set them."""

from __future__ import annotations

import errno
import os
import stat
import struct
import subprocess
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Literal

import pytest

from agent_memory import SHA256, AgentMemory, VersionLimits
from agent_memory.filesystem import filesystem
from agent_memory.key import Key
from agent_memory_local import LocalBackend
from tests.support.users import as_user, open_directory

USER, GROUP, OTHER = 1234, 2345, 3456
ACL = "system.posix_acl_access"
DEFAULT_ACL = "system.posix_acl_default"

REPLACE: dict[str, Callable[[AgentMemory], object]] = {
    "write": lambda m: m.write("a.md", "new"),
    "write if unchanged": lambda m: m.write("a.md", "new", when=SHA256(sha256(b"second").hexdigest())),
    "write bytes": lambda m: m.write("a.md", b"new"),
    "write in parts": lambda m: m.write_blocks("a.md", [b"x" * 1500, b"y" * 1500], 3000),
    "edit": lambda m: m.edit("a.md", str.upper),
    "append to a file with another name": lambda m: m.append("a.md", "more"),
    "restore": lambda m: m.versions.restore("a.md", m.versions.list("a.md")[-1].id),
    "undo": lambda m: m.versions.undo(actor="ann"),
    "by the filesystem": lambda m: filesystem(m).pipe_file("a.md", b"new"),
}


def acl(*entries: tuple[int, int, int]) -> bytes:
    """A POSIX access control list of (tag, permissions, id), as the system stores it."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NOBODY = 0xFFFFFFFF
LIST = acl((1, 6, NOBODY), (2, 6, OTHER), (4, 0, NOBODY), (0x10, 6, NOBODY), (0x20, 0, NOBODY))
"""Of mode 0660: read and write for the owner and the user `OTHER`, nothing for the group."""


def of(path: Path) -> tuple[int, int, int]:
    """The mode, the owner and the group of a file."""
    found = path.stat()
    return stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid


def given(path: Path, mode: int, user: int = USER, group: int = GROUP) -> Path:
    """A file of another user; skips the test if only root could make it."""
    if not path.exists():
        path.write_text("old")
    if os.getuid() != 0:
        pytest.skip("only root can give files to other users")
    os.chown(path, user, group)
    path.chmod(mode)
    return path


@pytest.fixture
def shared() -> Iterator[Path]:
    with open_directory() as directory:
        yield directory


@pytest.mark.parametrize("durability", ["full", "process"])
@pytest.mark.parametrize("operation", REPLACE)
def test_a_replaced_file_keeps_its_owner_its_permissions_and_its_attributes(
    root: Path, operation: str, durability: Literal["full", "process"]
) -> None:
    backend = LocalBackend(root, durability=durability, allow_hard_links=True)
    backend.max_bytes = 2000
    with AgentMemory.open(backend, actor="ann") as memory:
        if operation in ("restore", "undo"):
            memory.versions.set_limits(VersionLimits())
        AgentMemory.open(backend, actor="ben").write("a.md", "first")
        memory.write("a.md", "second")
        path = given(root / "a.md", 0o664)
        os.setxattr(path, "user.note", b"of the user")
        os.setxattr(path, "security.selinux", b"a label")
        if operation.startswith("append"):
            os.link(path, root / "other")
        before = path.stat().st_ino
        REPLACE[operation](memory)
    assert path.stat().st_ino != before
    assert of(path) == (0o664, USER, GROUP)
    assert os.getxattr(path, "user.note") == b"of the user"
    assert os.getxattr(path, "security.selinux") == b"a label"


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1666, 0o7777])
def test_a_set_id_or_sticky_bit_does_not_survive_a_replacement(memory: AgentMemory, root: Path, mode: int) -> None:
    path = root / "kept.md"
    path.chmod(mode)
    memory.write("kept.md", "new")
    assert stat.S_IMODE(path.stat().st_mode) == mode & 0o777


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EPERM, errno.EACCES])
def test_a_file_is_read_where_attributes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(*_: object) -> bytes:
        raise OSError(number, os.strerror(number))

    backend = LocalBackend(tmp_path)
    backend.write(Key.tree().join("a.md"), b"text")
    monkeypatch.setattr(os, "getxattr", refused)  # as under a policy of the system
    for span in ((None, None), (1, 3)):
        found = backend.read(Key.tree().join("a.md"), *span)
        assert (found.data, found.size, found.origin) == (b"text"[slice(*span)], 4, None)


def test_the_origin_of_the_old_state_is_not_kept(memory: AgentMemory, root: Path) -> None:
    memory.versions.set_limits(VersionLimits())
    memory.write("a.md", "x")
    assert "user.agent_memory.origin" in os.listxattr(root / "a.md")
    LocalBackend(root).write(Key.tree().join("a.md"), b"y")
    assert "user.agent_memory.origin" not in os.listxattr(root / "a.md")


def test_an_access_control_list_is_kept(memory: AgentMemory, root: Path) -> None:
    path = given(root / "kept.md", 0o660)
    os.setxattr(path, ACL, LIST)
    memory.edit("kept.md", str.upper)
    assert os.getxattr(path, ACL) == LIST
    assert of(path) == (0o660, USER, GROUP)


def test_the_default_list_of_the_directory_opens_no_replaced_file(memory: AgentMemory, root: Path) -> None:
    path = given(root / "kept.md", 0o640)
    os.setxattr(root, DEFAULT_ACL, LIST)
    memory.edit("kept.md", str.upper)
    assert ACL not in os.listxattr(path)
    assert of(path) == (0o640, USER, GROUP)


EDIT = 'AgentMemory.open(root).edit("a.md", str.upper)'
NOT_PERMITTED = [
    pytest.param(0o666, 0o666, id="all may do the same"),
    pytest.param(0o664, None, id="the file cannot be opened"),
    pytest.param(0o646, 0o644, id="others may do more than the group"),
]


@pytest.mark.parametrize(("mode", "left"), NOT_PERMITTED)
def test_group_and_others_get_only_what_both_had_if_the_group_cannot_be_set(
    shared: Path, mode: int, left: int | None
) -> None:
    path = given(shared / "a.md", mode)
    body = f"""
try:
    {EDIT}
except WriteError as error:
    return str(error)
"""
    refused = as_user(shared, body, user=OTHER, groups=(OTHER,))
    if left is None:
        assert refused == "'a.md': the storage failed: Permission denied"
        assert of(path) == (mode, USER, GROUP)
    else:
        assert of(path) == (left, OTHER, OTHER)


def test_a_group_of_the_user_is_kept_although_the_owner_cannot_be(shared: Path) -> None:
    path = given(shared / "a.md", 0o660)
    as_user(shared, EDIT, user=OTHER, groups=(OTHER, GROUP))
    assert of(path) == (0o660, OTHER, GROUP)


def test_an_access_control_list_is_not_given_to_another_group(shared: Path) -> None:
    path = given(shared / "a.md", 0o660)
    os.setxattr(path, ACL, LIST)
    as_user(shared, EDIT, user=OTHER, groups=(OTHER,))
    assert of(path) == (0o600, OTHER, OTHER)
    assert ACL not in os.listxattr(path)


def test_a_read_only_file_is_refused(shared: Path) -> None:
    path = given(shared / "a.md", 0o444, OTHER, OTHER)
    body = """
refused = []
for change in (lambda m: m.edit("a.md", str.upper), lambda m: m.append("a.md", "x"), lambda m: m.delete("a.md")):
    try:
        change(AgentMemory.open(root))
    except FileOperationError as error:
        refused.append(str(error))
return refused
"""
    assert set(as_user(shared, body, user=OTHER, groups=(OTHER,))) == {"'a.md': the storage failed: Permission denied"}
    assert (path.read_text(), of(path)) == ("old", (0o444, OTHER, OTHER))


@pytest.mark.parametrize(("flag", "name"), [("i", "immutable"), ("a", "append-only")])
def test_an_error_names_the_attribute_that_forbids_a_change(
    memory: AgentMemory, root: Path, flag: str, name: str
) -> None:
    path = root / "kept.md"
    if subprocess.run(["chattr", f"+{flag}", path], check=False, capture_output=True).returncode:
        pytest.skip("this filesystem, or this user, has no such attributes")
    try:
        for change in (
            lambda: memory.write("kept.md", "new"),
            lambda: memory.edit("kept.md", str.upper),
            lambda: memory.delete("kept.md"),
            lambda: memory.rename("kept.md", "b.md"),
        ):
            with pytest.raises(OSError, match=f"the file has the attribute {name}.*chattr"):
                change()
    finally:
        subprocess.run(["chattr", f"-{flag}", path], check=True)
    assert [str(entry) for entry in memory.list()] == ["kept.md"]
    assert memory.read("kept.md") == "kept"


@pytest.fixture
def mounted_file(memory: AgentMemory, root: Path) -> Iterator[Path]:
    """A file that is a mount of its own."""
    memory.write("MEMORY.md", "old")
    path = root / "MEMORY.md"
    if os.getuid() != 0 or subprocess.run(["mount", "--bind", path, path], check=False).returncode:
        pytest.skip("mounting takes root")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


@pytest.mark.parametrize("change", [
    lambda m: m.write("MEMORY.md", "new"),
    lambda m: m.write("MEMORY.md", b"new"),
    lambda m: m.write_blocks("MEMORY.md", [b"new"], 3),
    lambda m: m.edit("MEMORY.md", str.upper),
    lambda m: m.delete("MEMORY.md"),
    lambda m: m.delete_tree(""),
    lambda m: m.rename("MEMORY.md", "other.md"),
])  # fmt: skip
def test_a_file_that_is_a_mount_of_its_own_is_named_as_such(
    memory: AgentMemory, mounted_file: Path, change: Callable[[AgentMemory], object]
) -> None:
    with pytest.raises(OSError, match="this file is a mount of its own: mount its directory instead"):
        change(memory)
    assert mounted_file.read_text() == "old"
    assert {path.name for path in mounted_file.parent.iterdir()} <= {"MEMORY.md", "kept.md"}


def test_a_file_that_is_a_mount_of_its_own_can_be_appended_to(memory: AgentMemory, mounted_file: Path) -> None:
    memory.append("MEMORY.md", "+")
    assert mounted_file.read_text() == "old+"


@pytest.fixture(params=[0o000, 0o077])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def kinds(root: Path) -> set[tuple[bool, int]]:
    """Whether a directory, and the mode, of everything at and below a root."""
    modes = ((path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in (root, *root.rglob("*")))
    return set(modes)


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize(("mode", "files", "directories"), [
    ("0640", 0o640, 0o750), ("660", 0o660, 0o770), (0o644, 0o644, 0o755), ("0o600", 0o600, 0o700),
    (0o620, 0o620, 0o720),
])  # fmt: skip
def test_new_files_and_directories_have_the_chosen_mode_under_any_umask(
    root: Path, mode: int | str, files: int, directories: int
) -> None:
    with AgentMemory.open(root.as_uri(), storage_options={"mode": mode}) as memory:
        memory.versions.set_limits(VersionLimits())
        memory.write("a/b/written.md", "x")
        memory.write("a/b/written.md", "again")
        memory.create("c/created.md", "x")
        memory.append("d/appended.md", "x")
        memory.append("d/appended.md", "x")
        memory.write_blocks("parts.md", [b"x"], 1)
        memory.copy("c", "copied")
        memory.rename("copied", "e/renamed")
    assert kinds(root) == {(True, directories), (False, files)}


def test_directories_above_the_root_have_the_chosen_mode(tmp_path: Path) -> None:
    AgentMemory.open(f"{tmp_path.as_uri()}/new/root?mode=0640").write("a.md", "x")
    assert kinds(tmp_path / "new") == {(True, 0o750), (False, 0o640)}


@pytest.mark.parametrize("mode", [0o400, 0o755, 0o4600, 640, -1, True, "", "private", "0999", 6.5, [0o600]])
def test_another_mode_is_refused(root: Path, mode: object) -> None:
    with pytest.raises(ValueError, match="mode must be the permission bits of files from 0600 to 0666"):
        AgentMemory.open(root.as_uri(), storage_options={"mode": mode})


def test_the_group_of_a_set_group_id_directory_is_inherited(root: Path) -> None:
    root.mkdir()
    if os.getuid() == 0:
        os.chown(root, -1, GROUP)
    group = root.stat().st_gid
    root.chmod(0o2770)
    AgentMemory.open(root, storage_options={"mode": "0660"}).write("a/b/c.md", "x")
    assert {(stat.S_IMODE(path.stat().st_mode), path.stat().st_gid) for path in root.rglob("*")} == {
        (0o2770, group), (0o660, group),
    }  # fmt: skip


def test_the_default_list_of_a_directory_is_inherited(root: Path) -> None:
    root.mkdir()
    os.setxattr(root, DEFAULT_ACL, LIST)
    AgentMemory.open(root, storage_options={"mode": "0660"}).write("a/b.md", "x")
    assert os.getxattr(root / "a/b.md", ACL) == LIST
    assert DEFAULT_ACL in os.listxattr(root / "a")


def test_two_users_of_one_group_share_a_store(shared: Path) -> None:
    os.chown(shared, -1, GROUP)
    shared.chmod(0o2770)
    body = """
options = {"mode": "0660"}
os.umask(0o077)
with AgentMemoryService(os.path.join(root, "store"), storage_options=options, versions=VersionLimits()) as service:
    memory = service.agent("ann")
    memory.append("log.md", "x")
    memory.write("d/a.md", str(os.getuid()))
    return len(memory.versions.list("d/a.md"))
"""
    assert as_user(shared, body, user=USER, groups=(USER, GROUP)) == 1
    assert as_user(shared, body, user=OTHER, groups=(OTHER, GROUP)) == 2
    assert as_user(shared, body, user=USER, groups=(USER, GROUP)) == 3
    assert of(shared / "store/agent_memory/ann/d/a.md") == (0o660, USER, GROUP)
