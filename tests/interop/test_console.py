"""The console beside a real broker: its pages, changes, live records, and what it refuses."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest

import barnabas as client
from barnabas.console.connections import CONNECTIONS_MAX
from barnabas.console.context import LIVE_PAGES_MAX
from barnabas.console.sessions import SESSIONS_OF_USER_MAX
from tests.support.broker_process import BrokerProcess
from tests.support.console_process import Console, running_console
from tests.support.reading import TIMEOUT_S, wait_until
from tests.support.registry_process import RegistryProcess
from tests.support.secured_broker import PASSWORD, USER, secured_broker

HOSTILE = [
    b"<script>alert(1)</script>",
    b"\"'><img src=x onerror=alert(1)>",
    b"a\x00\x1b[31m",
    "\u202eright to left".encode(),
    b"\xff\xfe",
    json.dumps({"<b>": "<i>", "user": {"id": 7}}).encode(),
    b"[" * 300 + b"]" * 300,
    b"x" * 900_000,
    None,
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path_factory.mktemp("console") / "data")
    running.start()
    try:
        with client.Admin(running.bootstrap) as admin:
            admin.create_topic("clicks", 2)
            admin.create_topic("views.of.pages", 3)
        with client.Producer(running.bootstrap) as producer:
            for number, value in enumerate(HOSTILE):
                producer.send("clicks", value, key=b"k%d" % number, partition=0, headers=[("<h>", b"<v>")])
        with client.Consumer(running.bootstrap, group="readers/<1>", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("clicks")
            while not consumer.poll(max_records=2, timeout_s=TIMEOUT_S):
                pass
            consumer.commit()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def console(broker: BrokerProcess) -> Iterator[Console]:
    with running_console(broker.bootstrap, "--allow-changes") as running:
        yield running


def test_pages_show_the_cluster(console: Console, broker: BrokerProcess) -> None:
    assert broker.bootstrap in console.page("/")
    topics = console.page("/topics?filter=views")
    assert "views.of.pages" in topics
    assert "/topic?name=clicks" not in topics
    assert "retention.ms" in console.page("/topic?name=clicks")
    group = "/group?" + urlencode({"name": "readers/<1>"})
    assert "readers/&lt;1&gt;" in console.page(group)
    assert "/topics/tree?under=views." in console.page("/topics/tree")
    assert "of." in console.page("/topics/tree?under=views.")
    assert "/topic?name=views.of.pages" in console.page("/topics/tree?under=views.of.")
    part = console.page("/topics?sort=partitions&order=desc", hx_request="true")
    assert "<html" not in part
    assert part.index("views.of.pages") < part.index("clicks")


def test_lag_and_rates_are_sampled(console: Console) -> None:
    def has_samples() -> bool:
        lag = json.loads(console.page("/group/lag.json?" + urlencode({"name": "readers/<1>"})))
        return len(lag["values"]) >= 1 and len(lag["times"]) == len(lag["values"])

    wait_until(has_samples, "the lag is sampled")


def test_hostile_records_are_text(console: Console) -> None:
    page = console.page("/records?topic=clicks&from=beginning")
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    for character in ("\x00", "\x1b", "\u202e"):
        assert character not in page
    assert len(page) < 200_000
    for offset, value in enumerate(HOSTILE):
        one = console.page(f"/record?topic=clicks&partition=0&offset={offset}")
        assert "<script>alert" not in one
        assert "&lt;h&gt;" in one
        status, _, headers = console.ask("HEAD", f"/record/value?topic=clicks&partition=0&offset={offset}", None)
        assert (status, headers["content-type"]) == (200, "application/octet-stream")
        assert headers["content-length"] == str(len(value or b""))


def test_pages_say_that_no_broker_answers(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker()
    with client.Admin(broker.bootstrap) as admin:
        admin.create_topic("clicks")
    with (
        running_console(broker.bootstrap, "-X", "default.api.timeout.ms=2000") as console,
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", console.port, timeout=TIMEOUT_S)) as connection,
        ThreadPoolExecutor(2) as threads,
    ):
        wait_until(lambda: console.get("/")[0] == 200, "the overview is shown")
        connection.request("GET", "/records/live?topic=clicks")
        response = connection.getresponse()
        response.readline()
        broker.kill()
        assert b"event: problem" in response.read()
        part = threads.submit(console.get, "/overview/figures", hx_request="true")
        page = threads.submit(console.get, "/")
        status, text, _ = part.result()
        assert (status, "<" in text) == (502, False)
        status, text, _ = page.result()
        assert (status, "tries again" in text) == (502, True)
        broker.restart()
        wait_until(lambda: console.get("/")[0] == 200, "the overview is back")


def test_records_are_found_by_their_content(console: Console) -> None:
    assert "1 record," in console.page("/records?topic=clicks&from=beginning&path=user.id&equals=7")
    assert "1 record," in console.page("/records?topic=clicks&from=beginning&key=k3")
    assert "0 records," in console.page("/records?topic=clicks&from=beginning&value=nowhere")
    assert "barnabas consume clicks" in console.page("/records?topic=clicks&partition=0&from=offset&offset=2")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topic?name=absent", 404),
        ("/records?topic=absent", 404),
        ("/records?topic=clicks&partition=9", 404),
        ("/records?topic=clicks&from=offset&offset=x", 400),
        ("/records?topic=clicks&from=time&time=x", 400),
        ("/records?topic=clicks&limit=-1", 400),
        ("/record?topic=clicks&partition=0&offset=99999", 404),
        ("/nowhere", 404),
        ("/static/../config.py", 404),
        ("/static/%2e%2e/config.py", 404),
        ("/topics?page=99999999999&sort=nothing", 200),
    ],
    ids=range(11),
)
def test_wrong_input_is_answered_in_words(console: Console, path: str, status: int) -> None:
    found, text, headers = console.get(path)
    assert found == status
    assert "Traceback" not in text
    assert "content-security-policy" in headers


def token_of(page: str) -> str:
    found = re.search(r'name="token" value="([0-9a-f]+)"', page)
    assert found
    return found[1]


def test_produced_record_is_shown(console: Console) -> None:
    token = token_of(console.page("/produce?topic=clicks"))
    fields = {"token": token, "topic": "clicks", "key": "me", "value": "hello", "partition": "1", "headers": "a: b"}
    status, _, headers = console.post("/produce", fields)
    assert status == 303
    assert "hello" in console.page(headers["location"])


def test_offsets_are_reset_after_a_preview(console: Console) -> None:
    name = {"name": "readers/<1>"}
    preview = console.page("/group/reset?" + urlencode({**name, "to": "latest"}))
    assert "Set these offsets" in preview
    fields = {**name, "token": token_of(preview), "to": "latest"}
    assert console.post("/group/reset", fields)[0] == 303
    with client.Admin(f"127.0.0.1:{console_broker_port(console)}") as admin:
        ends = admin.end_offsets([("clicks", 0), ("clicks", 1)])
        offsets = admin.group_offsets("readers/<1>")
    assert {where: each.offset for where, each in offsets.items()} == {where: ends[where] for where in offsets}


def console_broker_port(console: Console) -> str:
    found = re.search(r'class="where"[^>]*>127\.0\.0\.1:(\d+)<', console.page("/"))
    assert found
    return found[1]


def test_changes_need_the_token_and_the_origin(console: Console) -> None:
    fields = {"topic": "clicks", "value": "x"}
    assert console.post("/produce", fields)[0] == 403
    token = token_of(console.page("/produce?topic=clicks"))
    assert console.post("/produce", {**fields, "token": token}, origin="http://evil.example")[0] == 403
    assert console.post("/produce", {**fields, "token": "é"})[0] == 403
    assert console.get("/", host="evil.example")[0] == 403


def test_half_sent_requests_keep_nobody_out(console: Console) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX + 20):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", console.port), TIMEOUT_S))
            connection.sendall(b"POST /produce HTTP/1.1\r\nHost: ")
        assert console.get("/")[0] == 200


def test_live_pages_have_a_maximum(console: Console) -> None:
    request = f"GET /records/live?topic=clicks HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\n\r\n".encode()

    def first_event(connection: socket.socket) -> bytes:
        found = b""
        while b"data: " not in found and b"at most" not in found:
            part = connection.recv(4_096)
            assert part
            found += part
        return found

    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(LIVE_PAGES_MAX + 20):
            connections.append(stack.enter_context(socket.create_connection(("127.0.0.1", console.port), TIMEOUT_S)))
            connections[-1].sendall(request)
        refused = [b"at most" in first_event(connection) for connection in connections]
        assert refused.count(True) == 20
        assert console.get("/topics")[0] == 200
    wait_until(lambda: console_follows(console), "there is room for a live page again")


def console_follows(console: Console) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        connection.request("GET", "/records/live?topic=clicks")
        response = connection.getresponse()
        return response.status == 200 and response.readline().startswith(b"data: ")


def test_endless_head_ends_the_connection(console: Console) -> None:
    with socket.create_connection(("127.0.0.1", console.port), TIMEOUT_S) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(1_000):
                connection.sendall(b"x: " + b"y" * 8_000 + b"\r\n")
            raise AssertionError("the console reads an endless head")


def test_changes_are_refused_without_permission(broker: BrokerProcess) -> None:
    with running_console(broker.bootstrap) as console:
        token = token_of(console.page("/produce?topic=clicks"))
        status, text, _ = console.post("/produce", {"token": token, "topic": "clicks", "value": "x"})
        assert (status, "--allow-changes" in text) == (403, True)


def test_new_records_are_streamed(console: Console, broker: BrokerProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=TIMEOUT_S)
    with contextlib.closing(connection), client.Producer(broker.bootstrap) as producer:
        connection.request("GET", "/records/live?topic=views.of.pages")
        response = connection.getresponse()
        assert response.headers["content-type"].startswith("text/event-stream")
        response.readline()  # the first event tells that the page follows the topic
        producer.send("views.of.pages", b"<live>").result()
        found: list[dict[str, dict[str, str]]] = []
        while not found:
            line = response.readline().decode()
            if line.startswith("data: "):
                found = json.loads(line[6:])["records"]
    assert found[0]["value"] == {"text": "<live>"}


def test_users_sign_in_and_out(tmp_path: Path) -> None:
    with secured_broker(tmp_path) as broker:
        settings = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=SCRAM-SHA-256"]
        with running_console(broker.address("SASL_PLAINTEXT"), *settings) as console:
            assert console.get("/")[0] == 303
            assert console.get("/", cookie="barnabas-console=\xe9")[0] == 303
            status, text, _ = console.post("/sign-in", {"user": USER, "password": "wrong"})
            assert (status, "reject" in text, "wrong" in text.replace("or password", "")) == (403, True, False)
            status, _, headers = console.post("/sign-in", {"user": USER, "password": PASSWORD})
            assert status == 303
            cookie = headers["set-cookie"]
            assert "httponly" in cookie.lower()
            assert "samesite=strict" in cookie.lower()
            session = cookie.split(";")[0]
            assert USER in console.page("/", cookie=session)
            assert PASSWORD not in console.page("/", cookie=session)
            assert console.post("/sign-out", {}, cookie=session)[0] == 303
            assert console.get("/", cookie=session)[0] == 303
            status, _, headers = console.get("/topics", cookie=session, hx_request="true")
            assert (status, headers["hx-redirect"]) == (401, "/sign-in")
            assert console.get("/group/lag.json?name=x", cookie=session, accept="application/json")[0] == 401
            events = console.page("/records/live?topic=x", cookie=session, accept="text/event-stream")
            assert events.startswith("event: ended")


def test_live_page_ends_with_its_session(tmp_path: Path) -> None:
    with secured_broker(tmp_path) as broker, client.Admin(**broker.client("SASL_PLAINTEXT")) as admin:
        admin.create_topic("clicks")
        settings = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=SCRAM-SHA-256"]
        with running_console(broker.address("SASL_PLAINTEXT"), *settings) as console:
            _, _, headers = console.post("/sign-in", {"user": USER, "password": PASSWORD})
            session = headers["set-cookie"].split(";")[0]
            connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=TIMEOUT_S)
            with contextlib.closing(connection):
                connection.request("GET", "/records/live?topic=clicks", headers={"cookie": session})
                response = connection.getresponse()
                response.readline()
                console.post("/sign-out", {}, cookie=session)
                assert b"event: ended" in response.read()


def test_sixth_session_of_a_user_ends_the_first(tmp_path: Path) -> None:
    with secured_broker(tmp_path) as broker:
        settings = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=SCRAM-SHA-256"]
        with running_console(broker.address("SASL_PLAINTEXT"), *settings) as console:
            cookies = []
            for _ in range(SESSIONS_OF_USER_MAX + 1):
                _, _, headers = console.post("/sign-in", {"user": USER, "password": PASSWORD})
                cookies.append(headers["set-cookie"].split(";")[0])
            assert [console.get("/", cookie=each)[0] for each in cookies[:2]] == [303, 200]


def test_many_wrong_passwords_wait(tmp_path: Path) -> None:
    with secured_broker(tmp_path) as broker:
        settings = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=SCRAM-SHA-256"]
        with running_console(broker.address("SASL_PLAINTEXT"), *settings) as console:

            def attempt(number: int) -> int:
                return console.post("/sign-in", {"user": USER, "password": f"wrong {number}"})[0]

            with ThreadPoolExecutor(20) as threads:
                answers = list(threads.map(attempt, range(20)))
            assert set(answers) == {403, 503}
            assert console.post("/sign-in", {"user": USER, "password": PASSWORD})[0] == 303


FIRST = '{"type": "record", "name": "Click", "fields": [{"name": "page", "type": "string"}]}'
SECOND = (
    '{"type": "record", "name": "Click", "fields": ['
    '{"name": "page", "type": "string"}, {"name": "user", "type": "string", "default": ""}]}'
)
BROKEN = '{"type": "record", "name": "Click", "fields": [{"name": "page", "type": "int"}]}'


def test_schemas_differ_and_are_checked(broker: BrokerProcess, tmp_path: Path) -> None:
    process = RegistryProcess(broker.bootstrap, tmp_path / "registry.log")
    with contextlib.ExitStack() as stopping:
        stopping.callback(process.close)
        url = process.url
        registry = client.SchemaRegistry(url)
        for text in (FIRST, SECOND):
            registry.register("clicks/value", client.Schema(text))
        assert registry.subjects() == ["clicks/value"]
        assert registry.versions("clicks/value") == [1, 2]
        with running_console(broker.bootstrap, "--registry", url) as console:
            assert "/schema?name=clicks%2Fvalue" in console.page("/schemas")
            page = console.page("/schema?name=clicks%2Fvalue")
            assert "Differences from version 1 to version 2" in page
            assert re.search(r"<ins>\+ .*user", page)
            fields = {"token": token_of(page), "name": "clicks/value"}
            assert "can become version 3" in console.post("/schema/check", {**fields, "schema": SECOND})[1]
            assert "cannot become version 3" in console.post("/schema/check", {**fields, "schema": BROKEN})[1]
            assert "cannot become version 3" in console.post("/schema/check", {**fields, "schema": "<broken"})[1]
            assert console.get("/schema?name=absent")[0] == 404
            assert console.get("/schema?name=clicks%2Fvalue&version=9")[0] == 404


def test_console_without_a_registry_has_no_page_of_schemas(console: Console) -> None:
    assert "/schemas" not in console.page("/")
    assert console.get("/schemas")[0] == 404


def test_security_page_explains_decisions(tmp_path: Path) -> None:
    authorizer = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with secured_broker(tmp_path, **authorizer) as broker:
        rule = client.AclBinding(
            client.ResourcePattern(client.ResourceType.TOPIC, "clicks"),
            client.AclEntry("User:<bob>", "*", client.Operation.READ, client.Permission.ALLOW),
        )
        with client.Admin(**broker.client("SASL_PLAINTEXT")) as admin:
            admin.create_acls([rule])
            admin.alter_client_quotas({"user": "bob"}, {"producer_byte_rate": 1024.0})
        settings = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=SCRAM-SHA-256"]
        with running_console(broker.address("SASL_PLAINTEXT"), *settings) as console:
            _, _, headers = console.post("/sign-in", {"user": USER, "password": PASSWORD})
            cookie = headers["set-cookie"].split(";")[0]
            page = console.page("/security", cookie=cookie)
            for text in ("User:&lt;bob&gt;", USER, "producer_byte_rate", "SCRAM-SHA-256"):
                assert text in page
            asked = {"principal": "<bob>", "operation": "read", "kind": "topic", "resource": "clicks"}
            assert "Allowed: an ACL allows it" in console.page("/security?" + urlencode(asked), cookie=cookie)
            other = {**asked, "operation": "write"}
            assert "Denied: no ACL of the resource" in console.page("/security?" + urlencode(other), cookie=cookie)
            wrong = {**asked, "kind": "planet"}
            assert console.get("/security?" + urlencode(wrong), cookie=cookie)[0] == 400
