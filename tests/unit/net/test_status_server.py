"""The pages of metrics and health over HTTP: what they answer, and the bounds for whoever asks."""

from __future__ import annotations

import asyncio
import base64
import gc
import logging
import socket
import ssl
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import AuthenticationError, ConfigurationError, DisconnectedError, UnavailableError
from barnabas.metrics.exposition import CONTENT_TYPE, SNAPSHOT_AGE_S_MAX, Snapshots
from barnabas.metrics.metric import Sample, gauge
from barnabas.net import status_server
from barnabas.net.status_server import (
    CONNECTION_S_MAX,
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    LoopProbe,
    StatusPages,
    StatusServer,
    serving_status,
)
from barnabas.security.http_authentication import HttpCredentials, HttpIdentity
from barnabas.security.http_settings import HttpAddress, HttpSecurity
from barnabas.security.principal import Principal
from tests.support.certificates import Certificates

ANSWERED = gauge("barnabas_test_answers", "Answers.")
OF_TOPIC = gauge("barnabas_test_size", "Size.", "topic")
TIMEOUT_S = 30.0


@contextmanager
def serving(clock: ManualClock | None = None, **pages: Callable[..., object]) -> Iterator[StatusServer]:
    shown = StatusPages(**{"metrics": lambda: [b"the ", b"metrics\n"], **pages})  # type: ignore[arg-type]
    server = StatusServer("0", shown, clock or ManualClock())
    server.start()
    try:
        yield server
    finally:
        server.close()


def port_of(server: StatusServer) -> int:
    return int(server.url.rpartition(":")[2])


def ask(server: StatusServer, path: str, method: str = "GET") -> tuple[HTTPResponse, bytes]:
    with closing(HTTPConnection("127.0.0.1", port_of(server), timeout=TIMEOUT_S)) as connection:
        connection.request(method, path)
        response = connection.getresponse()
        return response, response.read()


def connect(server: StatusServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port_of(server)), TIMEOUT_S)


def read_all(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(65_536):
        received += piece
    return received


def test_metrics_are_text_for_prometheus() -> None:
    with serving() as server:
        response, body = ask(server, "/metrics?any=thing")
    assert (response.status, response.getheader("Content-Type"), body) == (200, CONTENT_TYPE, b"the metrics\n")


def test_scrapes_over_http_leave_no_memory_behind() -> None:
    clock = ManualClock()
    rendered = 0

    def collect() -> Iterator[Sample]:
        nonlocal rendered
        rendered += 1
        for topic in range(200):
            yield OF_TOPIC.sample(rendered * 1_000 + topic, f"topic-{topic}")

    snapshots = Snapshots(collect, clock, lambda _s: None)

    def bytes_after(count: int) -> tuple[int, int]:
        """Scrape so often; return the traced memory, and the size of one answer."""
        for _ in range(count):
            clock.advance(2 * SNAPSHOT_AGE_S_MAX)
            _, text = ask(server, "/metrics")
        gc.collect()
        return tracemalloc.get_traced_memory()[0], len(text)

    with serving(clock, metrics=snapshots.pieces) as server:
        bytes_after(5)
        tracemalloc.start()
        try:
            few, _ = bytes_after(20)
            many, text_bytes = bytes_after(100)
        finally:
            tracemalloc.stop()
    assert rendered == 125
    assert many - few < 4 * text_bytes


def test_health_and_readiness_answer_ok_or_503_with_the_reasons() -> None:
    state: dict[str, object] = {"alive": True, "reasons": []}
    with serving(is_alive=lambda: state["alive"], not_ready=lambda: state["reasons"]) as server:
        assert [(ask(server, path)[0].status) for path in ("/healthz", "/readyz")] == [200, 200]
        state |= {"alive": False, "reasons": ["it is starting", "2 replicas are out of sync"]}
        answers = {path: ask(server, path) for path in ("/healthz", "/readyz")}
    assert {path: (response.status, body) for path, (response, body) in answers.items()} == {
        "/healthz": (503, b"the event loop does not respond\n"),
        "/readyz": (503, b"it is starting\n2 replicas are out of sync\n"),
    }


def test_head_gets_no_body() -> None:
    with serving() as server:
        response, body = ask(server, "/metrics", "HEAD")
    assert (response.status, response.getheader("Content-Length"), body) == (200, "12", b"")


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metricsx", "/..%2fmetrics", "*", "http://other/metrics"])
def test_other_paths_do_not_exist(path: str) -> None:
    with serving() as server:
        assert ask(server, path)[0].status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "BREW"])
def test_other_methods_are_not_allowed(method: str) -> None:
    with serving() as server:
        response, _ = ask(server, "/metrics", method)
    assert (response.status, response.getheader("Allow")) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"\x00\xff\x00\xff\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\r\n",
    ],
)
def test_what_is_no_request_ends_its_connection_alone(sent: bytes) -> None:
    with serving() as server:
        with connect(server) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            assert b"200" not in read_all(connection).partition(b"\r\n")[0]
        assert ask(server, "/healthz")[0].status == 200


def test_the_head_of_a_request_is_bounded() -> None:
    with serving() as server, connect(server) as connection:
        connection.sendall(b"GET /" + b"x" * (2 * HEAD_BYTES_MAX))
        assert b"the pages are /metrics" in read_all(connection)


def test_connections_beyond_the_limit_are_closed_at_once() -> None:
    with serving() as server:
        held = [connect(server) for _ in range(CONNECTIONS_MAX)]
        with connect(server) as one_more:
            assert one_more.recv(1) == b""
        for each in held:
            each.close()


def test_a_connection_that_is_over_its_time_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, begun, goes_on = ManualClock(), threading.Event(), threading.Event()
    monkeypatch.setattr(status_server, "SWEEP_S", 0.01)

    def metrics() -> list[bytes]:
        begun.set()
        goes_on.wait(TIMEOUT_S)
        return [b"late"]

    with serving(clock, metrics=metrics) as server, connect(server) as slow:
        slow.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert begun.wait(TIMEOUT_S)
        clock.advance(CONNECTION_S_MAX)
        assert slow.recv(1) == b""
        goes_on.set()


def test_a_client_that_does_not_send_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_server._Handler, "timeout", 0.05)
    with serving() as server, connect(server) as slow:
        slow.sendall(b"GET /metrics HTTP/1.0\r\nX-Slow: ")
        assert slow.recv(1) == b""


def test_a_reader_that_does_not_read_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_server._Handler, "timeout", 0.05)
    ended = threading.Event()
    monkeypatch.setattr(status_server._Handler, "log_error", lambda *_: ended.set())
    with serving(metrics=lambda: [bytes(32 * 1024 * 1024)]) as server, connect(server) as slow:
        slow.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert ended.wait(TIMEOUT_S)


@pytest.mark.parametrize(
    "error", [RuntimeError("odd"), OSError("too many open files")], ids=lambda error: type(error).__name__
)
def test_an_error_of_the_metrics_is_logged_and_the_next_request_tries_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    left = [error]

    def metrics() -> list[bytes]:
        if left:
            raise left.pop()
        return [b"fine\n"]

    with serving(metrics=metrics) as server:
        assert ask(server, "/metrics")[0].status == 500
        assert ask(server, "/metrics")[1] == b"fine\n"
    assert "cannot respond to a request for /metrics" in caplog.text


def test_nothing_listens_after_the_end() -> None:
    with serving() as server:
        address = "127.0.0.1", port_of(server)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, TIMEOUT_S)


def test_an_address_in_use_is_named() -> None:
    with serving() as server:
        second = serving_status(HttpAddress(f"127.0.0.1:{port_of(server)}"), lambda: [])
        with pytest.raises(UnavailableError, match=r"cannot listen on .*; choose another address with --http"):
            second.__enter__()


def test_samples_are_served_and_no_address_serves_nothing() -> None:
    with serving_status(None, lambda: []) as server:
        assert server is None
    with serving_status(HttpAddress("127.0.0.1:0"), lambda: [ANSWERED.sample(42)]) as server:
        assert server is not None
        assert b"\nbarnabas_test_answers 42.0\n" in ask(server, "/metrics")[1]


def test_a_loop_is_alive_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.new_event_loop()
    runs = threading.Thread(target=loop.run_forever)
    runs.start()
    assert LoopProbe(loop).is_alive()
    loop.call_soon_threadsafe(loop.stop)
    runs.join()
    monkeypatch.setattr(status_server, "LOOP_ANSWER_S_MAX", 0.01)
    assert not LoopProbe(loop).is_alive()
    loop.close()
    assert not LoopProbe(loop).is_alive()


# --- authentication and TLS ---

PASSWORD = "planted-password"


def prove(credentials: HttpCredentials) -> HttpIdentity:
    """Accept one password for every user; only admin may see the cluster."""
    if credentials.secret.reveal() == "nobody knows":
        raise DisconnectedError("no broker responds")
    if credentials.secret.reveal() != PASSWORD:
        raise AuthenticationError("the password is wrong")
    return HttpIdentity(Principal("User", credentials.user or "token"), credentials.user == "admin")


@contextmanager
def protected(security: HttpSecurity, **pages: Callable[..., object]) -> Iterator[StatusServer]:
    shown = StatusPages(**{"metrics": lambda: [b"the metrics\n"], **pages})  # type: ignore[arg-type]
    server = StatusServer("0", shown, ManualClock(), security, prove)
    server.start()
    try:
        yield server
    finally:
        server.close()


def get(
    server: StatusServer, path: str, user: str = "", password: str = PASSWORD, context: ssl.SSLContext | None = None
) -> tuple[int, bytes, str | None]:
    """Return the status, the content and the challenge of a page."""
    headers = {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()} if user else {}
    port = port_of(server)
    made = (
        HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        if context is None
        else HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT_S, context=context)
    )
    with closing(made) as connection:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read(), response.getheader("WWW-Authenticate")


def test_metrics_need_a_user_who_may_describe_the_cluster(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with protected(HttpSecurity(users=True)) as server:
        status, content, challenge = get(server, "/metrics")
        assert (status, content) == (401, b"Unauthorized\n")
        assert challenge is not None
        assert "Basic" in challenge
        assert "Bearer" in challenge
        assert get(server, "/metrics", "admin", "planted-wrong")[0] == 401
        assert get(server, "/metrics", "alice")[:2] == (403, b"User:alice may not describe the cluster\n")
        assert get(server, "/metrics", "admin", "nobody knows")[0] == 503
        assert get(server, "/metrics", "admin") == (200, b"the metrics\n", None)
    assert "failed to authenticate: user=admin address=127.0.0.1 listener=http" in caplog.text
    assert "refused a request: principal=User:alice" in caplog.text
    assert "planted" not in caplog.text


def test_supervisors_see_the_health_without_its_reasons() -> None:
    with protected(HttpSecurity(users=True), not_ready=lambda: ["topic hidden-3 is offline"]) as server:
        assert get(server, "/healthz")[:2] == (200, b"ok\n")
        assert get(server, "/readyz")[:2] == (503, b"not ready\n")
        assert get(server, "/readyz", "alice")[:2] == (503, b"not ready\n")
        assert get(server, "/readyz", "admin")[:2] == (503, b"topic hidden-3 is offline\n")


@pytest.mark.parametrize(
    ("address", "security", "reason"),
    [
        ("0.0.0.0:0", HttpSecurity(), "without authentication"),
        ("[::]:0", HttpSecurity(), "without authentication"),
        ("0.0.0.0:0", HttpSecurity(users=True), "passwords without encryption"),
        ("0.0.0.0:0", HttpSecurity(users=True, allow_anonymous=True), "passwords without encryption"),
        ("127.0.0.1:0", HttpSecurity(keyfile="key.pem"), "need --http-certfile"),
        ("127.0.0.1:0", HttpSecurity(certfile="missing.pem"), "cannot read missing.pem"),
    ],
)
def test_unprotected_pages_for_other_machines_are_refused(address: str, security: HttpSecurity, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        StatusServer(address, StatusPages(lambda: []), ManualClock(), security, prove)


def test_operator_can_permit_pages_for_everybody(caplog: pytest.LogCaptureFixture) -> None:
    StatusServer("0.0.0.0:0", StatusPages(lambda: []), ManualClock(), HttpSecurity(allow_anonymous=True))
    assert "without authentication (--allow-anonymous)" in caplog.text


def test_pages_that_cannot_authenticate_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="--http-auth none"):
        StatusServer("0", StatusPages(lambda: []), ManualClock(), HttpSecurity(users=True))


def test_https_uses_changed_certificates_and_ends_silent_clients(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    file = certificates.server("pages")
    context = ssl.create_default_context(cafile=str(certificates.ca))
    with protected(HttpSecurity(certfile=str(file))) as server:
        assert server.url.startswith("https://127.0.0.1:")
        assert get(server, "/metrics", "admin", context=context)[0] == 200
        assert get(server, "/metrics", context=context)[0] == 401
        renewed = Certificates(tmp_path / "renewed")
        renewed.server("pages").replace(file)
        trusting = ssl.create_default_context(cafile=str(renewed.ca))
        assert get(server, "/healthz", context=trusting)[0] == 200
        with pytest.raises(ssl.SSLError):
            get(server, "/healthz", context=context)
        with closing(connect(server)) as plain:
            plain.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert b"metrics" not in read_until_the_end(plain)


def test_time_of_a_tls_connection_is_limited(tmp_path: Path) -> None:
    clock = ManualClock()
    security = HttpSecurity(certfile=str(Certificates(tmp_path).server("pages")))
    server = StatusServer("0", StatusPages(lambda: []), clock, security, prove)
    server.start()
    with closing(connect(server)) as silent:
        clock.advance(CONNECTION_S_MAX)
        assert read_until_the_end(silent) == b""
    server.close()


def read_until_the_end(connection: socket.socket) -> bytes:
    try:
        return read_all(connection)
    except ConnectionResetError:
        return b""
