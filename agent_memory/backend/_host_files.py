"""Files on the host: `keep_attributes` of a file that is replaced, and `with_reason` for a refused change."""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn

ORIGIN_ATTRIBUTE: Final = "user.agent_memory.origin"
"""The attribute with the origin of a file's state on local disk; it belongs to the content, so it is not kept."""
_ACL: Final = "system.posix_acl_access"
_LABEL: Final = "security.selinux"
_USER: Final = "user."
_NO_ATTRIBUTES = {errno.ENOTSUP, errno.ENOSYS}
_NOT_PERMITTED = {errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENODATA} | _NO_ATTRIBUTES
"""The errors of a change that this user, this user namespace or this filesystem does not allow.

``ENODATA``: another program removed the attribute in between.
"""
_IS_MOUNT: Final = "this file is a mount of its own: mount its directory instead (here it can only be appended to)"
_HAS_FLAG: Final = "the file has the attribute {}, which forbids this change: remove it with chattr"
_FLAGS: Final = {0x10: "immutable", 0x20: "append-only"}
_GET_FLAGS: Final = 0x80086601  # FS_IOC_GETFLAGS on 64-bit systems


def keep_attributes(old: int, new: int) -> None:
    """Give an open new file the owner, the permission bits and the attributes of the file that it will replace.

    A set-user-id, set-group-id or sticky bit is not kept. An owner that this process may not set becomes its own. If
    the group cannot be set, group and others get only the permissions that both had, and an access control list is
    left out, because it would give the new group the permissions of the old one.

    Raises:
        OSError: the filesystem failed, for example because it is full.
    """
    before, names = os.fstat(old), _names(old)
    for name in names:
        if (name.startswith(_USER) and name != ORIGIN_ATTRIBUTE) or name == _LABEL:
            _permitted(_copy, old, new, name)
    has_group = _keep_owner(before, new)
    bits = stat.S_IMODE(before.st_mode) & 0o777
    if _ACL in names:
        has_group = has_group and _permitted(_copy, old, new, _ACL)
        bits = bits if has_group else bits & 0o700
    if not has_group:
        both = bits >> 3 & bits & 0o7
        bits = bits & 0o700 | both << 3 | both
    if (_ACL not in names or not has_group) and _ACL in _names(new):
        _permitted(os.removexattr, new, _ACL)  # inherited from the default list of the directory
    if stat.S_IMODE(os.fstat(new).st_mode) != bits:
        _permitted(os.fchmod, new, bits)


def _keep_owner(before: os.stat_result, new: int) -> bool:
    """Set owner and group as far as this is permitted, and return whether the group is as before."""
    after = os.fstat(new)
    if (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid):
        return True
    return (
        _permitted(os.fchown, new, before.st_uid, before.st_gid)
        or after.st_gid == before.st_gid
        or _permitted(os.fchown, new, -1, before.st_gid)
    )


def _names(file: int) -> list[str]:
    try:
        return os.listxattr(file)
    except AttributeError:
        return []  # macOS
    except OSError as error:
        if error.errno not in _NO_ATTRIBUTES:
            raise
        return []


def _copy(old: int, new: int, name: str) -> None:
    os.setxattr(new, name, os.getxattr(old, name))


def _permitted(change: Callable[..., None], *arguments: object) -> bool:
    """Make a change of an open file; False if this user or this filesystem does not allow it."""
    try:
        change(*arguments)
    except OSError as error:
        if error.errno not in _NOT_PERMITTED:
            raise
        return False
    return True


@contextmanager
def with_reason(name: str, directory: int | None = None) -> Iterator[None]:
    """Give an `OSError` about a regular file the reason as its text, if the reason is found.

    Args:
        name: the file's path, or its name in ``directory``.
        directory: an open directory.
    """
    try:
        yield
    except OSError as error:
        raise_with_reason(error, name, directory)


def raise_with_reason(error: OSError, name: str, directory: int | None = None) -> NoReturn:
    """Raise an error as `with_reason`: for code that an interrupt must not leave with an open file."""
    if reason := _reason(error.errno, name, directory):
        raise type(error)(error.errno, reason) from error
    raise error


def _reason(number: int | None, name: str, directory: int | None) -> str | None:
    if sys.platform == "linux" and number in (errno.EBUSY, errno.EPERM):
        with suppress(OSError, StopIteration), _opened(name, os.O_NOFOLLOW, directory) as file:
            if number == errno.EPERM:
                return _flag(file)
            with _opened(str(Path(name).parent), os.O_DIRECTORY, directory) as above:
                return _IS_MOUNT if _mount_of(file) != _mount_of(above) else None
    return None


@contextmanager
def _opened(name: str, flags: int, directory: int | None) -> Iterator[int]:
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _flag(file: int) -> str | None:
    import fcntl  # not on Windows

    flags = struct.unpack("i", fcntl.ioctl(file, _GET_FLAGS, bytes(4)))[0]
    return next((_HAS_FLAG.format(flag) for bit, flag in _FLAGS.items() if flags & bit), None)


def _mount_of(descriptor: int) -> str:
    """The system's number of the mount of an open file or directory."""
    with Path(f"/proc/self/fdinfo/{descriptor}").open(encoding="ascii") as facts:
        return next(line for line in facts if line.startswith("mnt_id:"))
