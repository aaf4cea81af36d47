"""The audit of real programs and a real log: complete when all is well, and what is the matter when it is not."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import barnabas
from barnabas.audit.balance import balance
from barnabas.audit.events import MonitoringEvent
from barnabas.audit.findings import Kind
from barnabas.cli.audit import audit as command
from barnabas.cli.signals import SIGNALLED
from barnabas.client.audit.event_log import count_stored, read_events, topic_ranges
from barnabas.errors import ApiError
from barnabas.model import TopicPartition
from barnabas.records import iter_headers
from barnabas.records.header import stamp
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.reading import wait_until

TOPIC = "clicks"
MINUTE_MS = 60_000
COUNT = 300
PARTITIONS = 3

Edit = Callable[[list[bytes]], list[bytes]]


def send(bootstrap: str, count: int = COUNT, topic: str = TOPIC, **settings: Any) -> None:
    """Send records of three minutes, in small batches."""
    with barnabas.Producer(bootstrap, audit=True, client_id="shop", batch_size=500, **settings) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS, timestamp_ms=number * 600)


def make_topic(bootstrap: str) -> None:
    with barnabas.Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, PARTITIONS)


def events_of(bootstrap: str) -> list[MonitoringEvent]:
    with barnabas.Admin(bootstrap) as admin:
        return read_events(bootstrap, admin, TOPIC)


def audit(bootstrap: str, *words: str) -> tuple[int, Any]:
    """Run `barnabas audit --json`; return the exit code and what it says."""
    result = CliRunner().invoke(command, [*words, "--json", "-b", bootstrap])
    assert result.exit_code in (0, 1), result.output
    return result.exit_code, json.loads(result.stdout)


def edit_log(broker: BrokerProcess, partition: int, edit: Edit) -> None:
    """Change the batches of a partition behind the back of its broker, which is killed for that."""
    broker.kill()
    folder = broker.data / f"{TOPIC}-{partition}"
    (path,) = folder.glob("*.log")
    data = path.read_bytes()
    batches = edit([data[position : position + each.size] for position, each in iter_headers(data)])
    offset, written = 0, bytearray()
    for batch in batches:
        view = bytearray(batch)
        stamp(view, 0, offset, 0)
        ((_position, header),) = iter_headers(view)
        offset = header.next_offset
        written += view
    path.write_bytes(written)
    for other in (*folder.glob("*.index"), *folder.glob("*.timeindex"), *folder.glob("*.snapshot")):
        other.unlink()
    (broker.data / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    (broker.data / "replication-offset-checkpoint").unlink(missing_ok=True)
    broker.restart()


def lose_a_batch(broker: BrokerProcess) -> list[int]:
    """Take the second batch of partition 1 away; return its first sequence number, and how many records it had."""
    lost: list[int] = []

    def lose(batches: list[bytes]) -> list[bytes]:
        ((_position, header),) = iter_headers(batches[1])
        lost.extend((header.base_sequence, header.record_count))
        return [batches[0], *batches[2:]]

    edit_log(broker, 1, lose)
    return lost


def test_all_that_was_produced_is_there(broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap)
    send(broker.bootstrap)
    code, found = audit(broker.bootstrap, TOPIC)
    assert code == 0
    assert [(each["window"], each["produced"], each["stored"], each["status"]) for each in found["windows"]] == [
        (minute * MINUTE_MS, 100, 100, "complete") for minute in range(3)
    ]
    assert found["complete_until"] == 3 * MINUTE_MS
    assert audit(broker.bootstrap, "why", TOPIC) == (0, [])


def test_audit_that_goes_on_serves_its_metrics_until_sigterm(broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap)
    send(broker.bootstrap)
    port = free_port()
    command = [sys.executable, "-m", "barnabas.cli.main", "audit", TOPIC, "-b", broker.bootstrap]
    with subprocess.Popen([*command, "--watch", "0.1", "--http", str(port)], stdout=subprocess.DEVNULL) as process:
        try:
            text = ""

            def page() -> bool:
                nonlocal text
                with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                    text = answer.read().decode()
                return 'barnabas_audit_windows{status="complete",topic="clicks"} 3.0' in text

            wait_until(page, lambda: text)
            assert 'barnabas_audit_records{tier="produced",topic="clicks"} 300.0' in text
            assert 'barnabas_audit_findings{kind="lost",tier="stored",topic="clicks"} 0.0' in text
            process.terminate()
            assert process.wait(60) == SIGNALLED + signal.SIGTERM
        finally:
            process.kill()


def test_http_without_watch_is_refused() -> None:
    result = CliRunner().invoke(command, [TOPIC, "--http", "0"])
    assert result.exit_code == 2
    assert "--http needs a repeated audit: --watch SECONDS" in result.stderr


def test_refused_records_are_not_produced_and_end_their_spans(broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap)
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    limits: Any = {"max_request_size": 2_000, "batch_size": 1_000, "audit": True}
    values = [b"a", b"b", bytes(3_000), b"c"]

    def with_tracing() -> Any:
        return {**limits, "interceptors": [barnabas.ProducerTracing(provider)]}

    def send_all() -> None:
        with barnabas.Producer(broker.bootstrap, **with_tracing()) as producer:
            producer.send(TOPIC, b"v", partition=0)
            with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
                producer.send(TOPIC, bytes(3_000), partition=0)
            with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
                producer.send_many(TOPIC, values, partition=0)
            with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
                producer.send_arrow(TOPIC, pa.table({"value": values}), partition=0)

    async def send_all_async() -> None:
        async with barnabas.AsyncProducer(broker.bootstrap, **with_tracing()) as producer:
            await producer.send(TOPIC, b"v", partition=0)
            with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
                await producer.send(TOPIC, bytes(3_000), partition=0)
            with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
                await producer.send_many(TOPIC, values, partition=0)
            with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
                await producer.send_arrow(TOPIC, pa.table({"value": values}), partition=0)

    send_all()
    asyncio.run(send_all_async())
    code, found = audit(broker.bootstrap, TOPIC)
    assert code == 0
    assert sum(each["produced"] for each in found["windows"]) == 10
    assert sum(each["stored"] for each in found["windows"]) == 10
    spans = exporter.get_finished_spans()
    failed = [span for span in spans if span.status.status_code is StatusCode.ERROR]
    assert (len(spans), len(failed)) == (20, 10)
    assert {(span.attributes or {}).get("error.type") for span in failed} == {"MESSAGE_TOO_LARGE"}


def test_lost_batch_is_found_with_its_sender_and_its_place(broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap)
    send(broker.bootstrap)
    lost = lose_a_batch(broker)
    code, found = audit(broker.bootstrap, TOPIC)
    assert code == 1
    assert sum(each["lost"] for each in found["windows"]) == lost[1]
    _code, why = audit(broker.bootstrap, "why", TOPIC)
    assert {(each["kind"], each["partition"], each["application"]) for each in why} == {("lost", 1, "shop")}
    assert why[0]["missing_sequences"] == [lost]


def test_batch_that_is_there_twice_is_found(broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap)
    send(broker.bootstrap)
    counts: list[int] = []

    def double(batches: list[bytes]) -> list[bytes]:
        headers = [header for batch in batches for _position, header in iter_headers(batch)]
        counts.extend((headers[0].record_count, headers[-1].next_offset))
        return [*batches, batches[0]]

    edit_log(broker, 2, double)
    code, found = audit(broker.bootstrap, TOPIC)
    assert code == 1
    _code, why = audit(broker.bootstrap, "why", TOPIC)
    assert {each["kind"] for each in why} == {"doubled"}
    assert [sum(each["records"] for each in why), min(each["offset"] for each in why)] == counts
    assert sum(each["stored"] for each in found["windows"]) == COUNT + counts[0]


def test_killed_producer_leaves_its_last_records_open_and_nothing_is_called_wrong(
    broker: BrokerProcess, tmp_path: Any
) -> None:
    make_topic(broker.bootstrap)
    program = f"""
import barnabas, os, signal
producer = barnabas.Producer({broker.bootstrap!r}, audit=True)
producer.send({TOPIC!r}, b"told", partition=0, timestamp_ms=1)
producer.flush()
producer.send({TOPIC!r}, b"not told", partition=0, timestamp_ms=2).result()
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False, timeout=120)
    code, found = audit(broker.bootstrap, TOPIC)
    assert code == 0
    (window,) = found["windows"]
    assert (window["produced"], window["stored"], window["open"], window["status"]) == (1, 2, 1, "open 1")
    assert found["complete_until"] is None


def test_producers_are_told_apart_and_restarts_of_the_broker_change_nothing(broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap)
    send(broker.bootstrap)
    broker.kill()
    broker.restart()
    send(broker.bootstrap)
    with barnabas.Producer(broker.bootstrap) as producer:
        producer.send(TOPIC, b"of one that tells nothing", partition=0, timestamp_ms=1)
    code, found = audit(broker.bootstrap, TOPIC)
    assert code == 0
    first = found["windows"][0]
    assert (first["produced"], first["stored"], first["not_audited"]) == (200, 201, 1)
    assert len({each.instance for each in events_of(broker.bootstrap)}) == 2


def test_events_are_told_with_flush_while_the_producer_lives(broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap)
    with barnabas.Producer(broker.bootstrap, audit=True) as producer:
        producer.send(TOPIC, b"1", partition=0, timestamp_ms=1)
        producer.flush()
        (event,) = events_of(broker.bootstrap)
        assert not event.is_last
        producer.send(TOPIC, b"2", partition=0, timestamp_ms=2)
        wait_until(
            lambda: max(each.number for each in events_of(broker.bootstrap)) > event.number, "it tells by itself"
        )
    assert max(events_of(broker.bootstrap), key=lambda each: each.number).is_last


def test_nothing_is_told_where_audit_is_off(broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap)
    with barnabas.Producer(broker.bootstrap) as producer:
        producer.send(TOPIC, b"1", partition=0, timestamp_ms=1)
    assert events_of(broker.bootstrap) == []
    _code, found = audit(broker.bootstrap, TOPIC)
    assert found["windows"][0]["status"] == "not audited"


def test_records_gone_by_request_are_not_called_lost(broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap)
    send(broker.bootstrap)
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.delete_records({(TOPIC, 0): 60})
        ranges = topic_ranges(admin, TOPIC)
    found = balance(events_of(broker.bootstrap), count_stored(broker.bootstrap, ranges))
    assert ranges[TopicPartition(TOPIC, 0)] == (60, 100)
    assert {each.kind for each in found.findings} <= {Kind.OPEN}
    assert [each.status for each in found.windows] == ["expired", "expired", "complete"]


def test_topic_whose_records_are_all_gone_and_one_made_again_have_lost_nothing(broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap)
    send(broker.bootstrap)
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.delete_records({(TOPIC, partition): COUNT // PARTITIONS for partition in range(PARTITIONS)})
        code, found = audit(broker.bootstrap, TOPIC)
        assert (code, {each["status"] for each in found["windows"]}) == (0, {"expired"})
        admin.delete_topic(TOPIC)
        wait_until(lambda: TOPIC not in admin.list_topics(), "the topic is gone")
    make_topic(broker.bootstrap)
    send(broker.bootstrap, 30)
    code, found = audit(broker.bootstrap, TOPIC)
    assert code == 0
    assert [(each["produced"], each["status"]) for each in found["windows"]] == [(30, "complete")]


def test_flush_of_an_asynchronous_producer_tells_the_audit_and_does_not_fail_with_it(broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap)

    async def send_one() -> None:
        async with barnabas.AsyncProducer(broker.bootstrap, audit=True) as producer:
            await producer.send(TOPIC, b"1", partition=0, timestamp_ms=1)
            await producer.flush(timeout_s=60)
            assert len(events_of(broker.bootstrap)) == 1

    asyncio.run(send_one())


def test_topic_that_does_not_exist_and_two_topics_are_refused(broker: BrokerProcess) -> None:
    result = CliRunner().invoke(command, ["nothing", "-b", broker.bootstrap])
    assert isinstance(result.exception, ApiError)
    assert "nothing" in str(result.exception)
    result = CliRunner().invoke(command, ["one", "two", "-b", broker.bootstrap])
    assert result.exit_code == 2


def test_batch_that_is_lost_of_a_producer_that_tells_nothing_is_found_by_its_numbers(broker: BrokerProcess) -> None:
    make_topic(broker.bootstrap)
    with barnabas.Producer(broker.bootstrap, batch_size=500) as producer:
        for number in range(COUNT):
            producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS, timestamp_ms=number * 600)
    lost = lose_a_batch(broker)
    code, found = audit(broker.bootstrap, TOPIC)
    assert (code, sum(each["lost"] for each in found["windows"])) == (1, lost[1])
    assert sum(each["counted_by_log"] for each in found["windows"]) == COUNT - lost[1]
    _code, (why,) = audit(broker.bootstrap, "why", TOPIC)
    assert (why["tier"], why["by_log"], why["missing_sequences"]) == ("stored", True, [lost])
