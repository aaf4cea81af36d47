"""Attacks on the console: other sites, forged hosts, paths, hostile names, too many live pages, and slow readers."""

from __future__ import annotations

import contextlib
import importlib
import socket
import threading
from collections.abc import Iterator, Sequence
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode

from console_checks import Suite, new_broker, running_console, wait_until

import barnabas

LIVE_PAGES = 1_000
LIVE_PAGES_MAX: int = importlib.import_module("barnabas.console.context").LIVE_PAGES_MAX
SLOW_READERS = 40
VALUE_BYTES = 10_000_000
TIMEOUT_S = 90.0
NAMES = (
    "<img src=x onerror=alert(1)>",
    "\"'><script>alert(1)</script>",
    "javascript:alert(1)",
    "{{7*7}}${7*7}",
    "\u202eright to left\x00\x1b",
    "../../etc/passwd",
    "a&b=c#d?e%2f",
    "x" * 2_000,
)
"""Names that anyone who may commit offsets can give to a group."""
PATHS = (
    "/static/../context.py",
    "/static/%2e%2e/context.py",
    "/static/..%2fcontext.py",
    "/static/%252e%252e/context.py",
    "/static/..%5ccontext.py",
    "/static//etc/passwd",
    "/static/vendor/../../../config.py",
    "/static/%00",
    "//etc/passwd",
    "/../../../../etc/passwd",
    "/static/" + "../" * 20 + "etc/passwd",
)


def attacks(suite: Suite) -> None:
    """Attack a console that may change a cluster without users, which is the weakest one."""
    with new_broker(suite, "attacked", message_max_bytes="20000000") as broker:
        with barnabas.Admin(broker.bootstrap) as admin:
            admin.create_topic("clicks", config={"max.message.bytes": "20000000"})
            for name in NAMES:
                admin.set_group_offsets(name, {("clicks", 0): 0})
            admin.alter_client_quotas({"user": NAMES[0]}, {"producer_byte_rate": 1024.0})
        with barnabas.Producer(broker.bootstrap, max_request_size=20_000_000) as producer:
            producer.send("clicks", b"x" * VALUE_BYTES)
        with running_console(broker.bootstrap, "--allow-changes") as console:
            hostile_names(suite, console)
            other_sites(suite, console, broker.bootstrap)
            forged_hosts(suite, console)
            paths(suite, console)
            live_pages(suite, console)
            slow_readers(suite, console)
    suite.say("attacks: the console answers other users during all of them")


def hostile_names(suite: Suite, console: Any) -> None:
    """Show and use names that contain HTML, scripts, templates and separators."""
    with suite.tab(console.url, "narrow") as tab:
        for path in ("/groups", "/security", *("/group?" + urlencode({"name": each}) for each in NAMES)):
            suite.show(tab, "attacks", path)
        page = tab.open("/groups")
        links = page.locator("tbody th a")
        for number in range(links.count()):
            links.nth(number).click()
            page.get_by_role("link", name="Reset offsets").click()
            page.get_by_role("button", name="Preview").click()
            page.get_by_role("button", name="Set these offsets").click()
            page.get_by_role("region", name="Offsets").wait_for()
            tab.open("/groups")
        for text in NAMES:
            for path in ("/topics?filter=", "/topics/tree?under=", "/groups?filter="):
                tab.open(path + urlencode({"": text})[1:])
        if "49" in tab.page.locator("h1").inner_text():
            suite.fault("the console evaluates a template of a name")


class OtherSite:
    """A site of an attacker, on another port of this machine.

    :param pages: the pages, by path.
    """

    def __init__(self, pages: dict[str, str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.end_headers()
                self.wfile.write(pages.get(self.path, "").encode())

            def log_message(self, *_words: object) -> None:
                """Write no line for a request."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def form(url: str, fields: dict[str, str]) -> str:
    """Return a page that sends a form by itself."""
    inputs = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in fields.items()
    )
    return f'<form id="f" method="post" action="{url}">{inputs}</form><script>f.submit()</script>'


def other_sites(suite: Suite, console: Any, bootstrap: str) -> None:
    """Let other sites send forms, read values, and show the console in a frame."""
    url = console.url
    site = OtherSite(
        {
            "/produce": form(f"{url}/produce", {"topic": "clicks", "value": "forged", "token": ""}),
            "/reset": form(f"{url}/group/reset", {"name": NAMES[0], "to": "latest"}),
            "/sign-out": form(f"{url}/sign-out", {}),
            "/frame": f'<iframe src="{url}/"></iframe>',
            "/read": f"<script>fetch('{url}/topics', {{credentials: 'include'}})"
            ".then(() => { document.title = 'read'; }, () => { document.title = 'refused'; })</script>",
            "/script": f'<script src="{url}/group/lag.json?name=x" onload="document.title=\'read\'"'
            " onerror=\"document.title='refused'\"></script>",
        }
    )
    try:
        with suite.tab(console.url) as tab:
            tab.expects_failures = True
            tab.open("/")
            page = tab.page
            for path in ("/produce", "/reset", "/sign-out"):
                with page.expect_response(lambda each: each.request.method == "POST") as answered:
                    page.goto(site.url + path)
                if answered.value.status != 403:
                    suite.fault(f"a form of another site gets the status {answered.value.status} at {path}")
            for path in ("/read", "/script"):
                page.goto(site.url + path)
                page.wait_for_function("() => document.title !== ''")
                if page.title() != "refused":
                    suite.fault(f"another site reads values of the console: {path}")
            page.goto(site.url + "/frame")
            if page.frames[-1].get_by_text("Under-replicated").count():
                suite.fault("another site shows the console in a frame")
            # the attack itself asks other hosts, and the browser reports each refusal
            tab.problems.clear()
    finally:
        site.close()
    with barnabas.Admin(bootstrap) as admin:
        if list(admin.end_offsets([("clicks", 0)]).values()) != [1]:
            suite.fault("a form of another site has produced a record")


def raw(console: Any, request: bytes) -> bytes:
    """Send bytes. Return the response until the console closes the connection."""
    with socket.create_connection(("127.0.0.1", console.port), TIMEOUT_S) as connection:
        connection.sendall(request)
        with contextlib.suppress(ConnectionError):
            return b"".join(iter(lambda: connection.recv(65_536), b""))
        return b""


def request(path: str, *headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", *headers, "Connection: close", "", ""]
    return "\r\n".join(lines).encode()


def forged_hosts(suite: Suite, console: Any) -> None:
    """Ask for other hosts, as a site does that has moved its name to the address of the console."""
    own = f"127.0.0.1:{console.port}"
    forged: Sequence[tuple[str, ...]] = (
        ("Host: evil.example",),
        (f"Host: evil.example:{console.port}",),
        (f"Host: {own}.evil.example",),
        (f"Host: evil.example@{own}",),
        ("Host: ",),
        (),
        ("Host: evil.example", f"X-Forwarded-Host: {own}"),
        ("Host: evil.example", f"Host: {own}"),
    )
    for headers in forged:
        status = raw(console, request("/topics", *headers)).split(b" ")[1:2]
        if status not in ([b"403"], [b"400"]):
            suite.fault(f"a request with {headers} gets the status {status}")
    status = raw(console, request("http://evil.example/topics", "Host: evil.example")).split(b" ")[1:2]
    if status not in ([b"403"], [b"400"]):
        suite.fault(f"a request for another site gets the status {status}")
    answer = raw(console, request("/sign-out", f"Host: {own}", "X-Forwarded-Host: evil.example"))
    if b"evil.example" in answer:
        suite.fault("the console repeats a forged host")


def paths(suite: Suite, console: Any) -> None:
    """Ask for files outside of the static ones."""
    for path in PATHS:
        answer = raw(console, request(path, f"Host: 127.0.0.1:{console.port}"))
        status = answer.split(b" ")[1:2]
        if status not in ([b"404"], [b"400"], [b"405"]) or b"root:" in answer or b"import " in answer:
            suite.fault(f"{path} gets the status {status}")


@contextlib.contextmanager
def connections(console: Any, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Open connections that send the same request, and do not read."""
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            each = stack.enter_context(socket.create_connection(("127.0.0.1", console.port), TIMEOUT_S))
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            with contextlib.suppress(ConnectionError):
                each.sendall(sent)
            opened.append(each)
        yield opened


def live_pages(suite: Suite, console: Any) -> None:
    """Open many live pages at the same time. Other pages are served, and live pages again afterwards."""
    asked = f"GET /records/live?topic=clicks HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\n\r\n".encode()
    with connections(console, LIVE_PAGES, asked) as opened:
        for path in ("/", "/topics", "/groups"):
            if console.get(path)[0] != 200:
                suite.fault(f"{path} is not served beside {LIVE_PAGES} live pages")
        follow = sum(map(follows, opened))
        if not 0 < follow <= LIVE_PAGES_MAX:
            suite.fault(f"{follow} of {LIVE_PAGES} live pages follow")
    suite.say(f"{follow} of {LIVE_PAGES} live pages follow, the others are refused")

    def follows_again() -> bool:
        with connections(console, 1, asked) as (one,):
            return follows(one)

    wait_until(follows_again, "the console follows again after many live pages")


def follows(connection: socket.socket) -> bool:
    """Return whether a live page gets events."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while b"data: " not in found:
            part = connection.recv(4_096)
            if not part:
                return False
            found += part
    return b'data: {"records"' in found


def slow_readers(suite: Suite, console: Any) -> None:
    """Ask for a large value, and never read it. The console serves others, and ends these connections."""
    asked = (
        f"GET /record/value?topic=clicks&partition=0&offset=0 HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\n\r\n"
    ).encode()
    with connections(console, SLOW_READERS, asked) as opened:
        for path in ("/", "/topics", "/groups"):
            if console.get(path)[0] != 200:
                suite.fault(f"{path} is not served beside slow readers")
        received = []
        for each in opened:
            each.settimeout(0.1)

        def are_ended() -> bool:
            return all(map(is_ended, opened))

        # a connection that the console has ended refuses further requests
        wait_until(are_ended, "the console ends the connections of slow readers")
        for each in opened:
            with contextlib.suppress(OSError):
                received.append(sum(len(part) for part in iter(lambda each=each: each.recv(65_536), b"")))  # type: ignore[misc]
        if any(count >= VALUE_BYTES for count in received):
            suite.fault("a slow reader has got the whole value")


def is_ended(connection: socket.socket) -> bool:
    """Return whether the other side has ended a connection, without reading what has arrived."""
    try:
        connection.send(b"\r\n")
    except TimeoutError:
        return False
    except OSError:
        return True
    return False
