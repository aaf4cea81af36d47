"""Hosts, origins and headers of the console."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.console.guard import Guard, allowed_hosts

HOSTS = allowed_hosts("127.0.0.1", 8082, ["console.example"])


def status_of(method: str, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
    """Send a request through the guard; return the status and the headers of the response."""
    sent: list[Any] = []

    async def page(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a page"})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    scope = {
        "type": "http",
        "method": method,
        "path": "/",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    asyncio.run(Guard(page, HOSTS, "http")(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found


@pytest.mark.parametrize("host", ["localhost:8082", "127.0.0.1:8082", "[::1]:8082", "console.example"])
def test_known_hosts_are_served(host: str) -> None:
    assert status_of("GET", {"host": host})[0] == 200


@pytest.mark.parametrize("host", ["", "evil.example", "localhost", "localhost:80", "localhost:8082.evil.example"])
def test_other_hosts_are_refused(host: str) -> None:
    assert status_of("GET", {"host": host})[0] == 403


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "https://localhost:8082"])
def test_changes_from_other_sites_are_refused(origin: str | None) -> None:
    headers = {"host": "localhost:8082", **({} if origin is None else {"origin": origin})}
    assert status_of("POST", headers)[0] == 403


def test_changes_from_its_own_pages_are_accepted() -> None:
    assert status_of("POST", {"host": "localhost:8082", "origin": "http://localhost:8082"})[0] == 200


def test_all_responses_have_the_headers() -> None:
    for host in ("localhost:8082", "evil.example"):
        _, headers = status_of("GET", {"host": host})
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_browsers_send_the_origin_of_forms() -> None:
    # With no-referrer, browsers send `Origin: null`, and the console would refuse all of its own forms.
    _, headers = status_of("GET", {"host": "localhost:8082"})
    assert headers["referrer-policy"] == "same-origin"
