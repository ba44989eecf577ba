"""Third-party filesystems of fsspec, each on a server started here: URLs, options, clients and servers."""

from __future__ import annotations

import getpass
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from tests.support import azurite
from tests.support.servers import free_port

USER, PASSWORD = "memory", "test-password"
_PATIENCE = 30.0
_SMBD = "/usr/sbin/smbd"


class Place(NamedTuple):
    """A filesystem to test: its URL and options, and its client and server."""

    url: str
    options: Mapping[str, object]


class Kind(NamedTuple):
    """A kind of filesystem.

    Attributes:
        name: the usual name.
        client: the fsspec filesystem, with its packages.
        server: the server of the test, with its package.
        open: starts the server over an empty folder.
    """

    name: str
    client: str
    server: str
    open: Callable[[Path], AbstractContextManager[Place]]


_SFTP = """
import asyncio, sys, asyncssh

class Server(asyncssh.SSHServer):
    def begin_auth(self, username):
        return True
    def password_auth_supported(self):
        return True
    def validate_password(self, username, password):
        return (username, password) == (sys.argv[3], sys.argv[4])

async def main():
    keys = [asyncssh.generate_private_key("ssh-ed25519")]
    files = lambda channel: asyncssh.SFTPServer(channel, chroot=sys.argv[2])
    await asyncssh.listen(
        "127.0.0.1", int(sys.argv[1]), server_factory=Server, server_host_keys=keys, sftp_factory=files
    )
    await asyncio.Event().wait()

asyncio.run(main())
"""
_FTP = """
import sys
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer

FTPHandler.authorizer = DummyAuthorizer()
FTPHandler.authorizer.add_user(sys.argv[3], sys.argv[4], sys.argv[2], perm="elradfmwMT")
FTPServer(("127.0.0.1", int(sys.argv[1])), FTPHandler).serve_forever()
"""
_WEBDAV = """
import sys
from cheroot import wsgi
from wsgidav.wsgidav_app import WsgiDAVApp

users = {"*": {sys.argv[3]: {"password": sys.argv[4]}}}
config = {"provider_mapping": {"/": sys.argv[2]}, "simple_dc": {"user_mapping": users}, "logging": {"enable": False}}
wsgi.Server(("127.0.0.1", int(sys.argv[1])), WsgiDAVApp(config), numthreads=20).start()
"""


_SMB = """[global]
security = user
passdb backend = tdbsam:{folder}/passdb.tdb
smb ports = {port}
bind interfaces only = yes
interfaces = lo
disable netbios = yes
disable spoolss = yes
log file = {folder}/log
{own}
[memories]
path = {share}
read only = no
"""


@contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    """Run a server and its child processes; yields when it accepts connections."""
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            if not _answers(server, port):
                log.seek(0)
                raise RuntimeError(f"the server did not start: {log.read().decode(errors='replace')}")
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


@contextmanager
def _served(program: str, folder: Path) -> Iterator[int]:
    """Run a server on a folder as the current user; yields its port."""
    port = free_port()
    with _running([sys.executable, "-c", program, str(port), str(folder), USER, PASSWORD], port):
        yield port


def _answers(server: subprocess.Popen[bytes], port: int) -> bool:
    ends = time.monotonic() + _PATIENCE
    while time.monotonic() < ends and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False


@contextmanager
def _sftp(folder: Path) -> Iterator[Place]:
    with _served(_SFTP, folder) as port:
        options = {"port": port, "username": USER, "password": PASSWORD, "known_hosts": None, "client_keys": None}
        yield Place("sftp://127.0.0.1/memories", options)


@contextmanager
def _ftp(folder: Path) -> Iterator[Place]:
    with _served(_FTP, folder) as port:
        yield Place("ftp://127.0.0.1/memories", {"port": port, "username": USER, "password": PASSWORD})


@contextmanager
def _webdav(folder: Path) -> Iterator[Place]:
    with _served(_WEBDAV, folder) as port:
        yield Place("webdav://memories", {"base_url": f"http://127.0.0.1:{port}", "auth": (USER, PASSWORD)})


@contextmanager
def _smb(folder: Path) -> Iterator[Place]:
    port, user = free_port(), getpass.getuser()
    share = folder / "share"
    share.mkdir()
    own = ""
    for name in ("private dir", "lock directory", "state directory", "cache directory", "pid directory", "ncalrpc dir"):
        (folder / name).mkdir()
        own += f"{name} = {folder / name}\n"
    settings = folder / "smb.conf"
    settings.write_text(_SMB.format(folder=folder, port=port, own=own, share=share))
    given = f"{PASSWORD}\n{PASSWORD}\n"
    add = ["smbpasswd", "-c", str(settings), "-s", "-a", user]
    subprocess.run(add, input=given, text=True, check=True, capture_output=True)
    command = [_SMBD, "--foreground", "--no-process-group", "--debug-stdout", f"--configfile={settings}"]
    with _running(command, port):
        options = {"port": port, "username": user, "password": PASSWORD}
        yield Place("smb://127.0.0.1/memories/here", options)


@contextmanager
def _azure(folder: Path) -> Iterator[Place]:
    with azurite.running(folder) as endpoint:
        account = f"AccountName={azurite.ACCOUNT};AccountKey={azurite.KEY};BlobEndpoint={endpoint};"
        yield Place("abfs://memories/here", {"connection_string": f"DefaultEndpointsProtocol=http;{account}"})


@contextmanager
def _zip(folder: Path) -> Iterator[Place]:
    archive = folder / "memories.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("memories/notes/a.md", "archived")
    yield Place(f"zip://memories::{archive.as_uri()}", {})


def _samba() -> str:
    """The version of the server; a missing server is reported only when it is started."""
    if not Path(_SMBD).exists():
        return "samba"
    told = subprocess.run([_SMBD, "--version"], capture_output=True, text=True, check=True).stdout
    return "samba " + told.split()[1].partition("-")[0]


def _versions(*packages: str) -> str:
    return ", ".join(f"{package} {version(package)}" for package in packages)


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("SFTP", f"`sftp://`, `ssh://`: {_versions('sshfs')}", _versions("asyncssh"), _sftp),
        Kind("FTP", "`ftp://`: fsspec's own", _versions("pyftpdlib"), _ftp),
        Kind("WebDAV", f"`webdav://`: {_versions('webdav4')}", _versions("WsgiDAV", "cheroot"), _webdav),
        Kind("Azure", f"`abfs://`, `az://`: {_versions('adlfs')}", azurite.AZURITE.replace("@", " "), _azure),
        Kind("zip", "`zip://`: fsspec's own", "an archive on the local disk", _zip),
        Kind("SMB", f"`smb://`: fsspec's own, {_versions('smbprotocol')}", _samba(), _smb),
    )
}
"""All kinds; samba is a Debian package, and only root can start it."""
