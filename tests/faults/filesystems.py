"""Filesystems for the tests: on loop devices, which can be switched off, and in memory."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN
_FLUSH_JOURNAL, _FLUSH_NOTHING = 1, 2
_MAKE = {"ext4": ["mkfs.ext4", "-q", "-m", "0"], "XFS": ["mkfs.xfs", "-q"]}
# No automatic journal commit during a test, so that every run loses the same data.
_OPTIONS = {"ext4": "loop,commit=600", "XFS": "loop"}
_PATIENCE = 120.0
KINDS = ("ext4", "XFS", "tmpfs")


class NotHereError(Exception):
    """This machine cannot mount the filesystem; the message is the reason."""


class _CommandError(Exception):
    """A command failed; the message is its output."""


@dataclass
class Filesystem:
    """A filesystem that can be mounted, filled, switched off and mounted again."""

    kind: str
    image: Path
    top: Path
    size: str = ""

    def mount(self) -> None:
        """Mount it, replaying its journal."""
        if self.kind == "tmpfs":
            _run("mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", self.top)
        else:
            _run("mount", "-t", self.kind.lower(), "-o", _OPTIONS[self.kind], self.image, self.top)

    def unmount(self) -> None:
        """Unmount it and give the loop device back.

        Another test may have made a mount namespace with a copy of this mount. The kernel keeps the switched-off
        filesystem until that namespace ends, and would mount it again.
        """
        _run("umount", self.top)
        end = time.monotonic() + _PATIENCE
        while self._is_attached() and time.monotonic() < end:
            time.sleep(0.02)

    def _is_attached(self) -> bool:
        files = Path("/sys/block").glob("loop*/loop/backing_file")
        for file in files:
            with suppress(OSError):  # the kernel may free the device at any time
                if file.read_text().strip() == str(self.image):
                    return True
        return False

    def sync(self) -> None:
        """Write everything to the disk."""
        with _opened(self.top) as descriptor:
            if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
                raise OSError(ctypes.get_errno(), "syncfs")

    def lose_power(self, *, flush_journal: bool = False) -> None:
        """Stop the filesystem at once, and start it again with the data on the disk."""
        flag = struct.pack("I", _FLUSH_JOURNAL if flush_journal else _FLUSH_NOTHING)
        with _opened(self.top) as descriptor:
            fcntl.ioctl(descriptor, _SHUTDOWN, flag)
        self.unmount()
        self.mount()

    def fill(self) -> Path:
        """Use every free byte; return the file that uses them, for its removal."""
        ballast = self.top / "ballast"
        with ballast.open("wb", buffering=0) as file:
            size = 64 << 20
            while size:
                size = _fallocated(file.fileno(), size)
            with suppress(OSError):
                while file.write(b"x" * 4096):
                    pass
        self.sync()
        return ballast


def _fallocated(file: int, size: int) -> int:
    try:
        os.posix_fallocate(file, os.fstat(file).st_size, size)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return size // 2
    os.lseek(file, 0, os.SEEK_END)
    return size


def filesystem_of(path: Path) -> str:
    """The kind of filesystem of a path."""
    kinds = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, top, kind, *_ = line.split()
        kinds[Path(top)] = kind
    return next(kinds[above] for above in [path, *path.parents] if above in kinds)


@contextmanager
def mounted(kind: str, directory: Path, size: str) -> Iterator[Filesystem]:
    """A new mounted filesystem; the end of the context removes it.

    Raises:
        NotHereError: the user is not root, a tool is missing, or mounting is not allowed here.
    """
    if os.geteuid() != 0:
        raise NotHereError("only root mounts filesystems")
    top, image = directory / "top", directory / "image"
    top.mkdir(parents=True)
    filesystem = Filesystem(kind, image, top, size)
    try:
        if kind != "tmpfs":
            _make(kind, image, size)
        filesystem.mount()
    except _CommandError as error:
        raise NotHereError(str(error)) from error
    try:
        yield filesystem
    finally:
        _run("umount", "--lazy", top)  # a failed test may have left files open
        image.unlink(missing_ok=True)


def _make(kind: str, image: Path, size: str) -> None:
    program, *arguments = _MAKE[kind]
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise NotHereError(f"{program} is not installed")
    _run("truncate", "-s", size, image)
    _run(found, *arguments, image)


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _run(program: str, *arguments: str | Path) -> None:
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[0]
        for argument in arguments:
            said = said.replace(f"{argument}: ", "").replace(str(argument), Path(argument).name)
        raise _CommandError(said.rstrip(".") if said.startswith(program) else f"{program}: {said}")
