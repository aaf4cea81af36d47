"""The schema registry: its REST interface, one after the other and several at once, and what its topic keeps."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

import barnabas
from barnabas.registry import changes
from barnabas.registry.requests import SchemaRequest
from barnabas.registry.schema_topic import OvertakenError, SchemaTopic
from barnabas.registry.state import AVRO, Content, RegistryState
from tests.support.broker_process import BrokerProcess
from tests.support.reading import wait_until
from tests.support.registry_process import RegistryProcess

CLICK = {"type": "record", "name": "Click", "fields": [{"name": "page", "type": "string"}]}
WIDER = {**CLICK, "fields": [*CLICK["fields"], {"name": "number", "type": "int", "default": 0}]}  # type: ignore[misc]
OTHER = {**CLICK, "fields": [{"name": "page", "type": "int"}]}

Start = Callable[..., RegistryProcess]


@pytest.fixture(scope="module")
def log_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("registries")


@pytest.fixture(scope="module")
def registry(shared_broker: BrokerProcess, log_folder: Path) -> Iterator[RegistryProcess]:
    """A registry that tests share, each with subjects of its own."""
    process = RegistryProcess(shared_broker.bootstrap, log_folder / "shared.log")
    yield process
    process.close()


@pytest.fixture
def start(bootstrap: str, tmp_path: Path) -> Iterator[Start]:
    """Start registries; all are ended after the test."""
    made: list[RegistryProcess] = []

    def one(number: int | None = None) -> RegistryProcess:
        made.append(RegistryProcess(bootstrap, tmp_path / f"registry-{len(made)}.log", number))
        return made[-1]

    yield one
    for each in made:
        each.close()


def test_versions_of_a_subject(registry: RegistryProcess, topic: str) -> None:
    subject = f"{topic}/ä value"
    path = f"/subjects/{quote(subject, safe='')}"
    first = registry.register(subject, CLICK)
    assert registry.register(subject, {**CLICK, "name": "Click"}) == first
    second = registry.register(subject, WIDER)
    assert second > first
    assert registry.get(f"{path}/versions") == [1, 2]
    latest = registry.get(f"{path}/versions/latest")
    assert (latest["subject"], latest["version"], latest["id"]) == (subject, 2, second)
    assert json.loads(latest["schema"]) == WIDER
    assert json.loads(registry.get(f"/schemas/ids/{first}")["schema"]) == CLICK
    assert {"subject": subject, "version": 1} in registry.get(f"/schemas/ids/{first}/versions")
    status, found = registry.call("POST", path, {"schema": json.dumps(CLICK)})
    assert (status, found["version"]) == (200, 1)
    assert subject in registry.get("/subjects")


def test_what_does_not_fit_is_refused_with_the_reason(registry: RegistryProcess, topic: str) -> None:
    registry.register(topic, CLICK)
    status, answer = registry.call("POST", f"/subjects/{topic}/versions", {"schema": json.dumps(OTHER)})
    assert (status, answer["error_code"]) == (409, 409)
    assert "reader type: int not compatible with writer type: string" in answer["message"]
    path = f"/compatibility/subjects/{topic}/versions/latest?verbose=true"
    assert registry.call("POST", path, {"schema": json.dumps(WIDER)}) == (200, {"is_compatible": True, "messages": []})
    status, answer = registry.call("POST", path, {"schema": json.dumps(OTHER)})
    assert (status, answer["is_compatible"]) == (200, False)
    assert registry.call("PUT", f"/config/{topic}", {"compatibility": "none"}) == (200, {"compatibility": "NONE"})
    registry.register(topic, OTHER)
    assert registry.get(f"/config/{topic}")["compatibilityLevel"] == "NONE"


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/nothing", None, 404),
        ("PATCH", "/subjects", None, 405),
        ("GET", "/subjects/{}/versions", None, 40401),
        ("GET", "/subjects/{}/versions/0", None, 42202),
        ("GET", "/subjects/{}/versions/99999999999999999999999", None, 42202),
        ("GET", "/schemas/ids/2147483647", None, 40403),
        ("GET", "/schemas/ids/x", None, 404),
        ("GET", "/config/{}", None, 40408),
        ("GET", "/mode/{}", None, 40409),
        ("PUT", "/config/{}", {"compatibility": "SOMEWHAT"}, 42203),
        ("PUT", "/config/{}", {}, 42203),
        ("PUT", "/mode/{}", {"mode": "SLEEP"}, 42204),
        ("DELETE", "/subjects/{}", None, 40401),
        ("DELETE", "/subjects/{}/versions/1", None, 40401),
        ("DELETE", "/config/{}", None, 40401),
        ("POST", "/subjects/{}/versions", None, 422),
        ("POST", "/subjects/{}/versions", b"no json", 400),
        ("POST", "/subjects/{}/versions", b"[" * 100_000, 400),
        ("POST", "/subjects/{}/versions", [], 422),
        ("POST", "/subjects/{}/versions", {}, 42201),
        ("POST", "/subjects/{}/versions", {"schema": "{"}, 42201),
        ("POST", "/subjects/{}/versions", {"schema": '"int"', "schemaType": "XML"}, 42201),
        ("POST", "/subjects/{}/versions", {"schema": '"int"', "references": [{}]}, 422),
        ("POST", "/subjects/{}/versions", {"schema": '"int"', "id": -7}, 422),
        ("POST", "/subjects/{}/versions", {"schema": '"int"', "id": 7}, 42205),
        ("POST", "/subjects/%20/versions", {"schema": '"int"'}, 42208),
        ("POST", "/subjects/{}", {"schema": '"int"'}, 40401),
        ("POST", "/compatibility/subjects/{}/versions/latest", {"schema": '"int"'}, 40401),
    ],
)
def test_wrong_input_is_answered_with_confluents_codes(
    registry: RegistryProcess, topic: str, method: str, path: str, body: object, code: int
) -> None:
    status, answer = registry.call(method, path.format(topic), body)
    assert (status, answer["error_code"]) == (code if code < 1000 else code // 100, code), answer


def test_requests_that_are_none_are_answered_or_ended(registry: RegistryProcess) -> None:
    assert registry.call("POST", "/subjects/x/versions", b"x" * 3_000_000)[0] == http.client.REQUEST_ENTITY_TOO_LARGE
    assert registry.call("PUT", "/config", {}, **{"Content-Type": "text/html"})[0] == 415
    assert registry.call("GET", "/subjects", Accept="text/html")[0] == 406
    connection = http.client.HTTPConnection(urlsplit(registry.url).netloc, timeout=60)
    connection.putrequest("GET", "/" + "x" * 100_000)
    connection.endheaders()
    assert connection.getresponse().status == http.client.REQUEST_HEADER_FIELDS_TOO_LARGE
    connection.close()
    assert registry.get("/") == {}


def test_modes(registry: RegistryProcess, topic: str) -> None:
    registry.register(topic, CLICK)
    assert registry.call("PUT", f"/mode/{topic}", {"mode": "READONLY"})[0] == 200
    assert registry.get(f"/mode/{topic}") == {"mode": "READONLY"}
    for method, path in (("POST", f"/subjects/{topic}/versions"), ("DELETE", f"/subjects/{topic}")):
        status, answer = registry.call(method, path, {"schema": json.dumps(WIDER)})
        assert (status, answer["error_code"]) == (422, 42205)
    assert registry.call("PUT", f"/mode/{topic}", {"mode": "IMPORT"})[1]["error_code"] == 42205
    assert registry.call("PUT", f"/mode/{topic}?force=true", {"mode": "IMPORT"})[0] == 200
    assert registry.register(topic, OTHER, id=70_001, version=9) == 70_001
    assert registry.get(f"/subjects/{topic}/versions/9")["id"] == 70_001
    assert registry.call("DELETE", f"/mode/{topic}")[0] == 200


def test_a_new_registry_knows_all(start: Start) -> None:
    first = start()
    for number in range(5):
        first.register(f"subject-{number}", {**CLICK, "name": f"Click{number}"})
    first.call("DELETE", "/subjects/subject-1")
    first.call("DELETE", "/subjects/subject-2")
    first.call("DELETE", "/subjects/subject-2?permanent=true")
    first.call("PUT", "/config/subject-3", {"compatibility": "FULL"})
    shown = ("/subjects", "/subjects?deleted=true", "/schemas?deleted=true", "/config/subject-3", "/schemas/ids/4")
    known = [first.get(path) for path in shown]
    first.kill()
    second = start(first.number)
    assert [second.get(path) for path in shown] == known
    assert second.register("subject-9", {**CLICK, "name": "Click9"}) == 6


def test_registries_of_one_topic_write_and_outlive_each_other(start: Start, bootstrap: str) -> None:
    registries = [start()]
    registries += [start(registries[0].number) for _ in range(2)]
    ids = []
    for number in range(9):
        registry = registries[number % 3]
        subject = f"subject-{number}"
        ids.append(registry.register(subject, {**CLICK, "name": f"Click{number}"}))
        # A registry knows what it has answered, and the others know it before they change anything.
        assert registry.get(f"/subjects/{subject}/versions/1")["id"] == ids[-1]
    assert ids == list(range(1, 10))
    for registry in registries:
        wait_until(lambda registry=registry: len(registry.get("/subjects")) == 9, "all know all")  # type: ignore[misc]
    registries[0].kill()
    assert registries[1].register("after", CLICK) == registries[2].register("after", CLICK) == 10
    assert registries[2].get("/subjects/after/versions") == [1]
    with barnabas.Admin(bootstrap) as admin:
        assert admin.describe_config(topic=registries[0].topic)["cleanup.policy"].value == "compact"


def test_client_in_the_group_of_earlier_releases_gets_no_request_of_the_registries_and_stops_none(
    start: Start, bootstrap: str
) -> None:
    """It has the client id of a registry that writes, and the partition."""
    first = start()
    with (
        listening() as (stranger, received),
        barnabas.Consumer(
            bootstrap, group="barnabas-schema-registry", client_id=f"schema-registry {stranger}"
        ) as consumer,
    ):
        consumer.subscribe(first.topic)
        wait_until(lambda: (consumer.poll(timeout_s=0.1), consumer.assignment())[1], "the partition")
        second = start(first.number)
        assert [each.register(f"s{each.url}", CLICK) for each in (first, second)] == [1, 1]
        assert second.call("PUT", "/config", {"compatibility": "FULL"})[0] == 200
        first.kill()
        assert second.register("after", WIDER) == 2
        assert received == []


@contextmanager
def listening() -> Iterator[tuple[str, list[object]]]:
    """Listen as a registry does; yields its address and who has connected."""
    received: list[object] = []
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)

        def take() -> None:
            while not stop.is_set():
                with suppress(TimeoutError):
                    connection, address = server.accept()
                    connection.close()
                    received.append(address)

        thread = threading.Thread(target=take)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", received
        finally:
            stop.set()
            thread.join()


def test_registry_that_slept_while_another_one_wrote_writes_no_id_a_second_time(bootstrap: str) -> None:
    """It has planned a change, and wakes up when the other one has registered another schema."""

    async def run() -> None:
        states = [RegistryState(), RegistryState()]
        awake, sleeping = (SchemaTopic(bootstrap, "_schemas-of-two", state, {}) for state in states)
        await awake.start()
        await sleeping.start()
        reading = sleeping._reading
        assert reading is not None
        reading.cancel()
        planned = changes.register(states[1], "a", SchemaRequest(Content(AVRO, '"int"')))
        await awake.append(changes.register(states[0], "b", SchemaRequest(Content(AVRO, '"long"'))).records)
        late = asyncio.create_task(sleeping.append(planned.records))
        await asyncio.sleep(0)  # it has begun to write before it reads on
        sleeping._reading = asyncio.create_task(sleeping._read())
        with pytest.raises(OvertakenError):
            await late
        await sleeping.repair()
        await awake.catch_up()
        for state in states:
            assert state.subjects() == ["b"]
            assert [each.subject for each in state.versions_of_id(".", 1)] == ["b"]
        again = changes.register(states[1], "a", SchemaRequest(Content(AVRO, '"int"')))
        await sleeping.append(again.records)
        assert again.answer == {"id": 2}
        await awake.stop()
        await sleeping.stop()

    asyncio.run(run())


def test_a_strange_record_in_the_topic_is_left_out(start: Start, bootstrap: str) -> None:
    registry = start()
    registry.register("before", CLICK)
    with barnabas.Producer(bootstrap) as producer:
        producer.send(registry.topic, b"strange", key=b"strange").result()
    registry.register("after", CLICK)
    assert registry.get("/subjects") == ["after", "before"]
    assert registry.log.read_text().count("skipping an unknown record") == 1
