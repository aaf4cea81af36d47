"""Kafka's own `kafka.tools.DumpLogSegments` reads a folder that Barnabas wrote, and finds nothing to complain about.

Where there is no Maven, no Java or no network, the tests are skipped and say so.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.clock import SYSTEM_CLOCK
from barnabas.model import TopicPartition
from barnabas.records import Compression
from barnabas.storage import Log, LogConfig, OsFileSystem
from tests.interop.clients.neutral import Event, Sending
from tests.interop.conftest import CLIENTS
from tests.interop.java import maven
from tests.support.broker_process import BrokerProcess
from tests.support.compacted_logs import SAMPLE, write_segments
from tests.support.compaction_steps import Keyed, compact, keyed_batch, read_gapped
from tests.support.xdist_groups import JAVA

pytestmark = [pytest.mark.xdist_group(JAVA), pytest.mark.timeout(maven.TEST_TIMEOUT_S)]

KAFKA_VERSION = "3.9.1"
TOOL_TIMEOUT_S = 60
COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = 60
"""So many with each client and compression."""


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder of Kafka's jars."""
    return maven.jars(f"kafka-{KAFKA_VERSION}-jars", f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}")


@pytest.fixture
def dump(kafka_jars: Path) -> Callable[..., str]:
    """Run the tool over files; return what it says."""

    def run(files: Iterator[Path] | list[Path], *options: str) -> str:
        names = ",".join(map(str, files))
        command = [maven.java(), "-cp", f"{kafka_jars}/*", "kafka.tools.DumpLogSegments", *options, "--files", names]
        done = subprocess.run(command, timeout=TOOL_TIMEOUT_S, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    return run


@pytest.fixture
def folder(make_broker: Callable[..., BrokerProcess]) -> Path:
    """A log of several segments, written by every client with every compression; its broker was stopped."""
    broker = make_broker(log_segment_bytes="8000", log_index_interval_bytes="300")
    for client in CLIENTS:
        for compression in COMPRESSIONS:
            producer = client.producer(broker.bootstrap, Sending(compression=compression))
            for number in range(0, RECORDS, 10):
                events = [
                    Event(b"value %d " % each * 8, b"key", (("header", b"x"),)) for each in range(number, number + 10)
                ]
                producer.produce("clicks", events, partition=0)
            producer.close()
    assert broker.stop() == 0
    return broker.data / "clicks-0"


def files_of(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in suffixes)


COMPLAINT = re.compile(
    r"mismatch|out of order|non-secutive|non-consecutive|corrupt|exception|invalid|isvalid: false", re.IGNORECASE
)


def complaints(said: str) -> list[str]:
    return [line for line in said.splitlines() if COMPLAINT.search(line)]


def test_kafka_s_dump_tool_reads_every_file(folder: Path, dump: Callable[..., str]) -> None:
    said = dump(files_of(folder, ".log", ".index", ".timeindex", ".snapshot"), "--deep-iteration", "--print-data-log")
    assert complaints(said) == []
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", said, re.MULTILINE)]
    assert offsets == list(range(len(CLIENTS) * len(COMPRESSIONS) * RECORDS))
    assert set(re.findall(r" compresscodec: (\w+) ", said)) == set(COMPRESSIONS)
    assert len(files_of(folder, ".log")) > 5
    assert said.count("isvalid: true") >= len(offsets) / RECORDS
    assert "producerId: " in said


def test_kafka_s_index_sanity_check_passes(folder: Path, dump: Callable[..., str]) -> None:
    indexes = files_of(folder, ".index", ".timeindex")
    said = dump(indexes, "--index-sanity-check")
    assert said.count("passed sanity check.") == len(indexes)
    assert complaints(dump(indexes, "--verify-index-only")) == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".log"])
def test_the_tool_would_complain(suffix: str, folder: Path, dump: Callable[..., str]) -> None:
    """A check of the check."""
    damaged = files_of(folder, suffix)[1]
    content = bytearray(damaged.read_bytes())
    position = 100 if suffix == ".log" else 3
    content[position] ^= 1
    damaged.write_bytes(content)
    assert complaints(dump([damaged], "--deep-iteration"))


def test_kafka_s_dump_tool_reads_a_compacted_log(tmp_path: Path, dump: Callable[..., str]) -> None:
    """Ours made the indexes. That offsets do not follow one another, which the tool tells, is meant."""
    folder = tmp_path / "clicks-0"
    write_segments(folder, SAMPLE)
    config = LogConfig(index_interval_bytes=0).override({"cleanup.policy": "compact"})
    log = Log.open(folder, TopicPartition("clicks", 0), config, SYSTEM_CLOCK, OsFileSystem())
    log.close()
    said = dump(files_of(folder, ".log", ".index", ".timeindex", ".snapshot"), "--deep-iteration", "--print-data-log")
    assert [each for each in complaints(said) if "secutive offsets" not in each] == []
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", said, re.MULTILINE)]
    batches = [batch for _, held in SAMPLE for batch in held]
    assert offsets == [record.offset for batch in batches for record in batch.records]
    assert said.count("isvalid: true") >= len(batches)
    assert "deleteHorizonMs: OptionalLong[1700000009000]" in said


def test_kafka_s_dump_tool_reads_what_was_compacted_here(tmp_path: Path, dump: Callable[..., str]) -> None:
    folder = tmp_path / "clicks-0"
    config = LogConfig(segment_bytes=2_000, index_interval_bytes=100).override({"cleanup.policy": "compact"})
    log = Log.open(folder, TopicPartition("clicks", 0), config, SYSTEM_CLOCK, OsFileSystem())
    for number in range(200):
        compression = list(Compression)[number % len(Compression)]
        rows = [
            Keyed(b"%d" % (key % 9), None if key % 13 == 0 else b"value", 1_700_000_000_000 + key) for key in range(5)
        ]
        log.append(keyed_batch(rows, compression, producer_id=7, producer_epoch=0, base_sequence=number * 5), 0)
        if number == 150:
            log.roll()
            log.flush()
            compact(log, OsFileSystem(), SYSTEM_CLOCK.time_ms())
    log.roll()
    log.flush()
    compact(log, OsFileSystem(), SYSTEM_CLOCK.time_ms())
    kept = [record.offset for record in read_gapped(log)]
    log.close()
    said = dump(files_of(folder, ".log", ".index", ".timeindex", ".snapshot"), "--deep-iteration", "--print-data-log")
    assert [each for each in complaints(said) if "secutive offsets" not in each] == []
    assert [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", said, re.MULTILINE)] == kept
    assert len(kept) == 5
    assert "deleteHorizonMs: OptionalLong[1" in said
    indexes = files_of(folder, ".index", ".timeindex")
    filled = [path for path in indexes if path.stat().st_size]
    assert filled
    assert dump(filled, "--index-sanity-check").count("passed sanity check.") == len(filled)
    assert complaints(dump(indexes, "--verify-index-only")) == []
