"""All readers of what a real broker accepts: batches with extreme values, and batches that nobody can decode."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys

import pyarrow as pa
import pytest

import barnabas
from barnabas.client.range_reader import RangeReader
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.records import read_header, read_records
from barnabas.records.header import pack_header, write_crc
from tests.interop.test_raw_frames import RawConnection, batch_of, produce_request

TIMESTAMPS_MS = (-(2**63), -(2**62), -1, 0, 253_402_300_800_000, 2**61, 2**62, 2**63 - 1)
"""The fifth is the first of the year 10000."""


def produce(bootstrap: str, topic: str, batch: bytes) -> None:
    connection = RawConnection(int(bootstrap.rsplit(":", 1)[1]))
    try:
        answer = connection.call(produce_request(batch, topic=topic), 7, ProduceResponse)
    finally:
        connection.sock.close()
    assert answer.responses[0].partition_responses[0].error_code == 0


def changed(batch: bytes, **fields: int) -> bytes:
    other = bytearray(batch)
    pack_header(other, read_header(batch)._replace(**fields))
    write_crc(other, 0, len(other))
    return bytes(other)


@pytest.fixture
def extreme(bootstrap: str, topic: str) -> str:
    with barnabas.Admin(bootstrap) as admin:
        admin.create_topic(topic)
    for number, timestamp_ms in enumerate(TIMESTAMPS_MS):
        batch = batch_of(b"%d" % number)
        fields = {"base_timestamp_ms": timestamp_ms, "max_timestamp_ms": timestamp_ms}
        produce(bootstrap, topic, changed(batch, leader_epoch=2**31 - 1, **fields))
    return topic


def test_consumers_read_all_timestamps(bootstrap: str, extreme: str) -> None:
    expected = list(zip(range(len(TIMESTAMPS_MS)), TIMESTAMPS_MS, strict=True))

    async def read_async() -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        async with barnabas.AsyncConsumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(extreme, 0)])
            while len(found) < len(expected):
                found += [(record.offset, record.timestamp_ms) for record in await consumer.poll(timeout_s=60)]
        return found

    found: list[tuple[int, int]] = []
    with barnabas.Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(extreme, 0)])
        while len(found) < len(expected):
            found += [(record.offset, record.timestamp_ms) for record in consumer.poll(timeout_s=60)]
        assert found == expected
        consumer.seek((extreme, 0), 0)
        columns = [consumer.poll_arrow(timeout_s=60)]
        while sum(each.num_rows for each in columns) < len(expected):
            columns.append(consumer.poll_arrow(timeout_s=60))
    times = pa.Table.from_batches(columns).column("timestamp").cast(pa.int64()).to_pylist()
    assert times == list(TIMESTAMPS_MS)
    assert asyncio.run(read_async()) == expected
    with RangeReader(bootstrap, extreme, 0, 0, len(expected)) as reader:
        records = [record for data in reader for record in read_records(data, extreme, 0)]
    assert [(record.offset, record.timestamp_ms) for record in records] == expected


def consume(bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barnabas.cli.main", "consume", "-e", "-q", "-b", bootstrap, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_consume_prints_all_timestamps(bootstrap: str, extreme: str) -> None:
    done = consume(bootstrap, extreme, "-J")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["ts"] for line in done.stdout.splitlines()] == list(TIMESTAMPS_MS)
    done = consume(bootstrap, extreme, "-f", r"%o %T\n", "-o", "s@4611686018427387904")
    assert done.stdout.split() == ["6", str(2**62), "7", str(2**63 - 1)], done.stderr


def test_a_batch_that_cannot_be_decoded_names_where_to_go_on(bootstrap: str, topic: str) -> None:
    with barnabas.Admin(bootstrap) as admin:
        admin.create_topic(topic)
    produce(bootstrap, topic, batch_of(b"before"))
    # The broker does not decompress: it cannot know that this is no zstd.
    batch = batch_of(b"one" * 20, b"two" * 20)
    produce(bootstrap, topic, changed(batch, attributes=4))
    produce(bootstrap, topic, batch_of(b"behind"))
    with barnabas.Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        assert [record.value for record in consumer.poll(timeout_s=60)] == [b"before"]
        with pytest.raises(barnabas.CorruptBatchError, match=f"{topic}-0 at offset 1: zstd .*offset 3") as raised:
            consumer.poll(timeout_s=60)
        with pytest.raises(barnabas.CorruptBatchError, match="offset 1"):
            consumer.poll_arrow(timeout_s=60)
        assert raised.value.next_offset == 3
        consumer.seek((topic, 0), raised.value.next_offset)
        assert [record.value for record in consumer.poll(timeout_s=60)] == [b"behind"]
    done = consume(bootstrap, topic)
    assert (done.returncode, done.stdout) == (1, "before\n")
    found = re.search(r"begins at offset (\d+)", done.stderr)
    assert found is not None, done.stderr
    done = consume(bootstrap, topic, "-o", found[1])
    assert (done.returncode, done.stdout) == (0, "behind\n"), done.stderr
