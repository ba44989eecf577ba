"""Who may use the pages: the one-time link, the session that it opens, and the checks of each request.

A request must name this server in ``Host``, so that no other name leads a browser here (DNS rebinding). It must carry
the session's cookie, and no ``Origin`` of another site. Each answer forbids frames, scripts of others and caches.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Collection
from typing import Final, TypeAlias
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_memory.web._text import ROOT

LINK_SECONDS: Final = 60
"""The seconds for which a link can be used."""
MAX_SESSIONS: Final = 20
"""The maximum of open sessions; one more link ends the oldest session."""
OPEN: Final = "/open"
CSRF: Final = "agent_memory.csrf"
"""The key in the scope of a request: the CSRF token of its session."""
_READING: Final = ("GET", "HEAD")
_STATIC: Final = "/static/"
_POLICY: Final = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # With no-referrer a browser sends "Origin: null" with a form, and the check of the origin would refuse it.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


Refused: TypeAlias = Callable[[int, str], Response]
"""Makes the page for a refused request, of its status and the reason."""


class WebAccess:
    """The links and the sessions of one application.

    Args:
        hosts: the values of ``Host`` that name the server, as ``127.0.0.1:8000``; compared without case.
        root: the path below which the pages are; "" is the whole host. The cookie is sent only below it. A browser
            sends the cookies of a host to all its ports, so another server of the host must not know this path.
        https: whether browsers reach the pages by TLS.
    """

    def __init__(self, hosts: Collection[str], *, root: str = "", https: bool = False) -> None:
        self.root = root
        self._hosts = frozenset(host.lower() for host in hosts)
        self._scheme = "https" if https else "http"
        self._cookie = f"agent-memory-{secrets.token_hex(4)}"
        self._link: tuple[str, float] | None = None
        self._sessions: dict[str, str] = {}

    def new_link(self) -> str:
        """The path of a new link, which opens one session; the link before it is dead."""
        token = secrets.token_urlsafe(32)
        self._link = (token, time.monotonic() + LINK_SECONDS)
        return f"{OPEN}?token={token}"

    def enter(self, token: str) -> Response | None:
        """Use the link up, and redirect with the cookie of a new session; None if the token is not that of a link."""
        if self._link is None or not _is_equal(token, self._link[0]):
            return None
        until, self._link = self._link[1], None
        if time.monotonic() >= until:
            return None
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session = secrets.token_urlsafe(32)
        self._sessions[session] = secrets.token_urlsafe(32)
        answer = RedirectResponse(f"{self.root}/", 303)
        secure = self._scheme == "https"
        answer.set_cookie(self._cookie, session, path=self.root or "/", secure=secure, httponly=True, samesite="strict")
        return answer

    def csrf_of(self, headers: Headers) -> str | None:
        """The CSRF token of the session whose cookie a request carries; None if it carries none."""
        given = cookie_parser("; ".join(headers.getlist("cookie"))).get(self._cookie, "")
        found = [csrf for session, csrf in self._sessions.items() if _is_equal(given, session)]
        return found[0] if found else None

    def refusal(self, headers: Headers, method: str) -> tuple[int, str] | None:
        """Return the status and the reason that refuse a request; None if its host and origin are allowed."""
        hosts = [host.lower() for host in headers.getlist("host")]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return 421, "This server does not have the name by which it was called."
        origins = [origin.lower() for origin in headers.getlist("origin")]
        if origins != [f"{self._scheme}://{hosts[0]}"] and (origins or method not in _READING):
            return 403, "The request came from a page of another site."
        return None


class Guarded:
    """Passes on the requests that may use the pages; all answers get the headers for security.

    Args:
        app: the pages.
        access: the links and the sessions.
        refused: makes the page for a refused request, of a status and a reason.
    """

    def __init__(self, app: ASGIApp, access: WebAccess, refused: Refused) -> None:
        self._app = app
        self._access = access
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._answering(scope)(scope, receive, send_with_headers)

    def _answering(self, scope: Scope) -> ASGIApp:
        headers, method, path = Headers(scope=scope), scope["method"], scope["path"]
        if refusal := self._access.refusal(headers, method):
            return self._refused(*refusal)
        if path == OPEN and "prefetch" in headers.get("sec-purpose", ""):
            return self._refused(403, "A link is opened, not fetched beforehand.")  # so that it still works
        if path == OPEN and method == "GET":
            token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            return self._access.enter(token) or self._refused(403, "This link was used already, or is too old.")
        if path.startswith(_STATIC):
            return self._app
        csrf = self._access.csrf_of(headers)
        if csrf is None or not path.startswith(f"{self._access.root}/"):
            return self._refused(401, "These pages are open only to the browser that used their link.")
        scope[CSRF] = csrf
        scope["path"] = path.removeprefix(self._access.root)
        ROOT.set(self._access.root)
        return self._app


def is_csrf(scope: Scope, given: object) -> bool:
    """Whether a form has the CSRF token of the session of its request."""
    return isinstance(given, str) and _is_equal(given, scope[CSRF])


def _is_equal(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), secret.encode())
