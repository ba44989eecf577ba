"""The options of ``mcp --http``: where to listen, which clients may connect, and whose memory each of them gets."""

from __future__ import annotations

import json
import os
import secrets
import stat
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from agent_memory.cli.files import given_text
from agent_memory.cli.output import note, printable
from agent_memory.cli.settings import Settings, usage_errors
from agent_memory.errors import OperationDenied
from agent_memory.key import agent_id
from agent_memory.memory import AsyncAgentMemory
from agent_memory.reading.lines import MARK

if TYPE_CHECKING:
    from mcp.server import MCPServer
    from mcp.server.auth.provider import AccessToken

    from agent_memory.mcp_server import OAuth

F = TypeVar("F", bound=Callable[..., Any])
Serve = Callable[["MCPServer[Any]"], Coroutine[Any, Any, None]]
_HOST: Final = "127.0.0.1"


def _address(text: str) -> str:
    """An IP address; a name could stand for other addresses tomorrow."""
    try:
        return str(ip_address(text))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not an IP address; 0.0.0.0 is all IPv4 addresses of this host") from None


_HTTP_OPTIONS: Final = (
    click.option("--host", type=_address, metavar="ADDRESS", help=f"IP address to listen on.  [default: {_HOST}]"),
    click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="Port; 0 is any free port.  [default: 0]"),
    click.option("--public-url", metavar="URL", help="The URL of this server for its clients, as its proxy has it."),
    click.option("--token-env", metavar="NAME", help="The environment variable that holds the token."),
    click.option("--token-file", metavar="FILE", help="The file of this host that holds the token."),
    click.option("--oauth-issuer", metavar="URL", help="Take access tokens of this OAuth server instead of the token."),
    click.option("--oauth-audience", metavar="TEXT", help="The audience of the tokens.  [default: the public URL]"),
    click.option("--oauth-scope", metavar="SCOPE", multiple=True, help="A scope that tokens must have; repeatable."),
    click.option("--oauth-write-scope", metavar="SCOPE", help="Without this scope a client can only read."),
    click.option("--agent-from-claim", metavar="CLAIM", help="Each value of this claim, for example sub, is an agent."),
    click.option("--graceful-timeout", type=click.IntRange(1, 3600), metavar="SECONDS",
                 help="Time for calls in progress after the first signal.  [default: 60]"),
)  # fmt: skip


def http_options(command: F) -> F:
    """Add the options that go with ``--http``."""
    for option in reversed(_HTTP_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class HttpOptions:
    """The values of the options; None if one is not given."""

    host: str | None
    port: int | None
    public_url: str | None
    token_env: str | None
    token_file: str | None
    oauth_issuer: str | None
    oauth_audience: str | None
    oauth_scope: tuple[str, ...]
    oauth_write_scope: str | None
    agent_from_claim: str | None
    graceful_timeout: int | None

    def require_none(self) -> None:
        """Refuse the options without ``--http``."""
        if given := self._given():
            raise click.UsageError(f"these options go with --http: {', '.join(given)}")

    def oauth(self, settings: Settings) -> OAuth | None:
        """The issuer of access tokens; None if clients send the token.

        Raises:
            click.UsageError: options exclude each other or need each other, or a value is invalid.
        """
        from agent_memory.mcp_server import OAuth

        if self.oauth_issuer is None:
            needing = [name for name in self._given() if name.startswith(("--oauth-", "--agent-from-"))]
            if needing:
                raise click.UsageError(f"these options go with --oauth-issuer: {', '.join(needing)}")
            return None
        _require_apart("--oauth-issuer", {"--token-env": self.token_env, "--token-file": self.token_file,
                                          "--actor": settings.actor})  # fmt: skip
        if self.agent_from_claim is not None:
            _require_apart("--agent-from-claim", {"--agent": settings.chosen_agent})
        with usage_errors():
            return OAuth(self.oauth_issuer, self.oauth_audience, self.oauth_scope, self.oauth_write_scope)

    def token(self) -> str | None:
        """The token from a variable or a file; never from an argument, because every user of the host could read it."""
        if self.token_file is not None:
            _require_apart("--token-file", {"--token-env": self.token_env})
            _require_private(self.token_file)
            return given_text(None, self.token_file).removeprefix(MARK.decode()).strip()
        if self.token_env is not None and not os.environ.get(self.token_env):
            raise click.UsageError(f"the environment variable {self.token_env!r} holds no token")
        return self.token_env and os.environ[self.token_env]

    def serve(self, settings: Settings, served: str, oauth: OAuth | None, probe: AsyncAgentMemory) -> Serve:
        """The function that runs a server over HTTP; it asks ``probe`` whether the storage answers.

        Raises:
            click.UsageError: other hosts could connect, and there is neither a token of the operator nor an issuer.
        """
        from agent_memory.mcp_server import serve_http
        from agent_memory.mcp_server._addresses import is_loopback
        from agent_memory.mcp_server._health import READY_SECONDS
        from agent_memory.mcp_server._http import SECONDS_TO_ANSWER

        host = self.host or _HOST
        given = self.token()
        if given is None and oauth is None and not is_loopback(host):
            raise click.UsageError(
                f"other hosts can reach {host}: give --token-env, --token-file or --oauth-issuer, and --public-url"
            )
        token = None if oauth else given or secrets.token_urlsafe()

        def announce(url: str) -> None:
            tell(settings, served, "over HTTP.")
            facts = {"url": url, **({"token": token} if token and given is None else {})}
            text = json.dumps(facts) if settings.json else "\n".join(f"{name}: {fact}" for name, fact in facts.items())
            click.echo(text, err=True)

        return lambda server: serve_http(
            server, token=token, oauth=oauth, host=host, port=self.port or 0, public_url=self.public_url,
            ready=lambda: probe.with_timeout(READY_SECONDS).exists("ready"),
            graceful_timeout=self.graceful_timeout or SECONDS_TO_ANSWER, listening=announce,
        )  # fmt: skip

    def memory_of(
        self, oauth: OAuth, memory: AsyncAgentMemory, of_agent: Callable[[str], AsyncAgentMemory]
    ) -> Callable[[AccessToken], AsyncAgentMemory]:
        """A function that returns the memory for an access token: one for all, or one for each value of a claim."""

        def memory_of(token: AccessToken) -> AsyncAgentMemory:
            claim = self.agent_from_claim
            found = memory if claim is None else of_agent(_agent(token, claim))
            return found if oauth.can_write(token) else found.read_only()

        return memory_of

    def _given(self) -> list[str]:
        return [f"--{name.replace('_', '-')}" for name, value in vars(self).items() if value not in (None, ())]


def _agent(token: AccessToken, claim: str) -> str:
    value = (token.claims or {}).get(claim)
    if not isinstance(value, str) or not value:
        raise OperationDenied(f"the access token has no text in its claim {claim!r}, which names the agent")
    return agent_id(value)


def _require_apart(name: str, others: dict[str, object]) -> None:
    for other, value in others.items():
        if value is not None:
            raise click.UsageError(f"{name} and {other} exclude each other")


def _require_private(file: str) -> None:
    """Refuse a file that all users can change; note one that they can read, as secrets in containers often are."""
    try:
        mode = Path(file).stat().st_mode
    except (OSError, ValueError):
        return  # reading it tells why
    if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
        raise click.UsageError(f"all users of this host can change the token in {file!r}: run 'chmod o=' on it")
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        note(f"all users of this host can read the token in {file!r}; 'chmod o=' hides it")


def tell(settings: Settings, served: str, how: str) -> None:
    """Say what is served, to a person at a terminal; the stderr of a server is otherwise the log of its client."""
    if not settings.json and sys.stderr is not None and sys.stderr.isatty():
        text = f"Serving {served} in {settings.url!r}, and waiting for a client {how}"
        click.echo(printable(text), err=True)
