"""The protection of all pages: the headers of responses, the allowed hosts, and the origin of changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from barnabas.addresses import host_port

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# With the policy no-referrer, browsers send `Origin: null` with forms.
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
SAFE_METHODS = frozenset({"GET", "HEAD"})
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


def allowed_hosts(host: str, port: int, others: Iterable[str]) -> frozenset[str]:
    """Return the values of the header Host that the console accepts.

    Other values come from a name that somebody else controls (DNS rebinding).

    >>> sorted(allowed_hosts("", 8082, ["console.example"]))
    ['127.0.0.1:8082', '[::1]:8082', 'console.example', 'console.example:8082', 'localhost:8082']
    """
    names = [*LOCAL_NAMES, *([host] if host else []), *others]
    return frozenset({*(host_port(name, port) for name in names), *others})


class Guard:
    """Refuses requests for other hosts and changes from other sites, and adds headers to all responses."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str], scheme: str) -> None:
        self._app = app
        self._hosts = hosts
        self._scheme = scheme

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        app = self._app if refusal is None else PlainTextResponse(refusal, 403)
        await app(scope, receive, send_with_headers)

    def _refusal(self, method: str, headers: Headers) -> str | None:
        host = headers.get("host", "")
        if host not in self._hosts:
            return "this console does not serve the host of this request; name it with --allowed-host\n"
        if method in SAFE_METHODS:
            return None
        if headers.get("origin") != f"{self._scheme}://{host}":
            return "a change must come from a page of this console\n"
        return None
