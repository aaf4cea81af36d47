"""Every client reads a log that was compacted, from every offset, gaps among them."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from barnabas import AsyncConsumer, Consumer, TopicPartition
from barnabas.client.range_reader import RangeReader
from barnabas.records import read_records
from tests.interop.clients.neutral import Client, Event
from tests.interop.clients.ours import Ours
from tests.support.broker_process import BrokerProcess
from tests.support.compacted_logs import SAMPLE_END as END
from tests.support.compacted_logs import SAMPLE_RECORDS, with_samples
from tests.support.reading import TIMEOUT_S, read

GROWING, ENDED = "growing", "ended"
"""Topics of one partition: to the one a record was appended, of the other the last records are gone."""


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that was started with folders that were compacted, and without any index."""
    broker = BrokerProcess(tmp_path_factory.mktemp("compacted") / "broker", {"log_index_interval_bytes": "0"})
    broker.start()
    with contextlib.closing(Ours().admin(broker.bootstrap)) as admin:
        for topic in (GROWING, ENDED):
            admin.create_topic(topic)
    with_samples(broker, GROWING, ENDED)
    with contextlib.closing(Ours().producer(broker.bootstrap)) as producer:
        producer.produce(GROWING, [Event(b"new")], partition=0)
    yield broker
    broker.close()


def test_every_record_that_is_left_is_read_from_every_offset(compacted: BrokerProcess, client: Client) -> None:
    expected = [(record.offset, record.value) for record in SAMPLE_RECORDS] + [(END, b"new")]
    with contextlib.closing(client.consumer(compacted.bootstrap, GROWING)) as consumer:
        assert [(place.offset, event.value) for place, event in read(consumer, len(expected))] == expected
        assert (consumer.beginning_offset(0), consumer.end_offset(0)) == (0, END + 1)
        for offset in range(END + 1):
            consumer.seek(0, offset)
            left = [each for each in expected if each[0] >= offset]
            assert [(place.offset, event.value) for place, event in read(consumer, len(left))] == left


def test_records_are_found_by_their_times(compacted: BrokerProcess, client: Client) -> None:
    with contextlib.closing(client.consumer(compacted.bootstrap, ENDED)) as consumer:
        for place in range(len(SAMPLE_RECORDS)):
            record = SAMPLE_RECORDS[place]
            assert consumer.offset_for_time(0, record.timestamp_ms) == record.offset


def test_our_reader_comes_to_an_end_whose_records_are_gone(compacted: BrokerProcess) -> None:
    """Its position and its lag say so, with records and with columns."""
    where = TopicPartition(ENDED, 0)
    with Consumer(compacted.bootstrap) as consumer:
        consumer.assign([where])
        for columns in (False, True):
            for offset in range(END + 1):
                consumer.seek(where, offset)
                found: list[int] = []
                deadline = time.monotonic() + TIMEOUT_S
                while consumer.position(where) < END:
                    assert time.monotonic() < deadline, (columns, offset, consumer.position(where))
                    if columns:
                        found += consumer.poll_arrow(timeout_s=0.1).column("offset").to_pylist()
                    else:
                        found += [record.offset for record in consumer.poll(timeout_s=0.1)]
                assert found == [record.offset for record in SAMPLE_RECORDS if record.offset >= offset]
                assert consumer.metrics()["lag"] in ({where: 0}, {})


def test_our_asynchronous_reader_comes_there_too(compacted: BrokerProcess) -> None:
    where = TopicPartition(ENDED, 0)

    async def read_all() -> list[int]:
        found: list[int] = []
        async with AsyncConsumer(compacted.bootstrap) as consumer:
            consumer.assign([where])
            consumer.seek(where, 3)
            while await consumer.position(where) < END:
                found += [record.offset for record in await consumer.poll(timeout_s=0.1)]
        return found

    found = asyncio.run(asyncio.wait_for(read_all(), TIMEOUT_S))
    assert found == [record.offset for record in SAMPLE_RECORDS if record.offset >= 3]


@pytest.mark.parametrize(
    ("bounds", "start", "end"),
    [(["beginning"], 0, END), (["24"], 24, END), (["-3"], 37, END), (["3", "e@1700000000017"], 3, 17)],
)
def test_the_command_stops_at_the_end(compacted: BrokerProcess, bounds: list[str], start: int, end: int) -> None:
    command = [sys.executable, "-m", "barnabas.cli.main", "consume", ENDED, "--exit-at-end", "--format", "%o\\n"]
    command += [part for bound in bounds for part in ("--offset", bound)]
    command += ["--bootstrap", compacted.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(record.offset) for record in SAMPLE_RECORDS if start <= record.offset < end]


def test_ranges_of_offsets_are_read_to_their_end(compacted: BrokerProcess) -> None:
    for start, end in [(0, END), (3, 7), (8, 12), (13, 15), (19, 24), (34, END), (39, END)]:
        with RangeReader(compacted.bootstrap, ENDED, 0, start, end) as reader:
            found = [
                record.offset
                for data in reader
                for record in read_records(data, ENDED, 0, start)
                if record.offset < end
            ]
        assert found == [record.offset for record in SAMPLE_RECORDS if start <= record.offset < end]
