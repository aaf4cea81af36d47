"""The cost of many partitions and of much data for a broker: start, clean shutdown, start after SIGKILL, memory.

    python -m bench.partitions                  all measurements, some minutes
    python -m bench.partitions many unwritten   some measurements
    python -m bench.partitions stored --gigabytes 0 1 20
    python -m bench.partitions --json FILE      also writes the figures as data

- `many`: 10,000 partitions, 100 topics of 100, with one record each;
- `folders`: the same in two log directories;
- `unwritten`: 5,000 empty partitions;
- `small-batches`: a gigabyte of one-record batches in the active segments of 8 partitions, produced to the broker;
- `stored`: gigabytes of flushed batches of 64 KiB in 4 partitions, and an unflushed gigabyte in one partition.

If permitted, the page cache is dropped before each start, so that reads from disk are included. All data is removed at
the end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from barnabas.clock import SYSTEM_CLOCK
from barnabas.model import TopicPartition
from barnabas.protocol.messages.create_topics import CreateTopicsResponse
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.records import BatchBuilder
from barnabas.storage import LogConfig, LogManager, OsFileSystem
from bench.arena import fresh_folder
from bench.broker_process import MeasuredBroker
from bench.figures import interruptible, parent_of, parser_of, refuse_unknown, show
from bench.progress import Progress
from bench.segment_files import one_record_batch
from bench.stalls.connection import Connection, Deadline, frame
from bench.stalls.crowds import fetch_of_all, topic_names
from bench.stalls.produce_frames import batch_of, produce_request
from bench.stalls.stage import TOPIC, create_topics_request
from bench.tables import table

TOPICS, PARTITIONS_EACH = 100, 100
UNWRITTEN_TOPICS = 50
ASKED_TIMES = 5
SMALL_BATCH_PARTITIONS = 8
PIPELINED = 1_000
STORED_PARTITIONS = 4
GIGABYTE = 10**9
STORED_BATCH_BYTES = 64 * 1024
VALUE_BYTES = 1_000
LIMIT_S = 600.0
DROP_CACHES = Path("/proc/sys/vm/drop_caches")


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value.

    :param to_reach: the goal in the same unit; None if there is no goal.
    """

    what: str
    value: float
    unit: str
    to_reach: float | None = None


def lines(figures: Sequence[Figure]) -> Iterator[str]:
    """Yield the figures as a table."""
    rows = [[each.what, value_text(each.value, each.unit), value_text(each.to_reach, each.unit)] for each in figures]
    yield from table(["what", "measured", "to reach"], rows, left=1)


def value_text(value: float | None, unit: str) -> str:
    """Return a value with its unit.

    >>> value_text(0.4267, "s"), value_text(82.4, "MiB"), value_text(None, "s")
    ('0.43 s', '82 MiB', '')
    """
    if value is None:
        return ""
    return f"{value:,.2f} {unit}" if unit == "s" else f"{value:,.0f} {unit}"


def drop_caches() -> None:
    """Drop the page cache, if this process has the permission."""
    with contextlib.suppress(OSError):
        os.sync()
        DROP_CACHES.write_text("1")


@contextlib.contextmanager
def connected(broker: MeasuredBroker) -> Iterator[Connection]:
    """Provide a connection to a broker inside the block."""
    connection = Connection(broker.port, Deadline(LIMIT_S))
    try:
        yield connection
    finally:
        connection.close()


def create_topics(broker: MeasuredBroker, names: Sequence[str], partitions: int) -> float:
    """Create topics with one request each. Return the duration in seconds."""
    begun = time.perf_counter()
    with connected(broker) as connection:
        for name in names:
            connection.ask(create_topics_request([name], partitions), 4, CreateTopicsResponse)
    return time.perf_counter() - begun


def write_to_all(broker: MeasuredBroker, topics: int = TOPICS, partitions: int = PARTITIONS_EACH) -> None:
    """Write one record to every partition."""
    batch = batch_of(1, b"x")
    parts = [(number, batch) for number in range(partitions)]
    with connected(broker) as connection:
        connection.pipeline(b"".join(produce_request(parts, name) for name in topic_names(topics)), topics)


def seconds_of(broker: MeasuredBroker, request: bytes) -> float:
    """Return the response time in seconds, as the median of several requests."""
    seconds = []
    with connected(broker) as connection:
        for _ in range(ASKED_TIMES):
            begun = time.perf_counter()
            connection.pipeline(request, 1)
            seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def measure_many(parent: Path, _: argparse.Namespace) -> Iterator[Figure]:
    """Measure 10,000 partitions with one record each."""
    return _measure_partitions(parent, f"{TOPICS * PARTITIONS_EACH:,} partitions")


def measure_folders(parent: Path, _: argparse.Namespace) -> Iterator[Figure]:
    """Measure 10,000 partitions in two log directories on one disk."""
    return _measure_partitions(parent, f"{TOPICS * PARTITIONS_EACH:,} partitions in two folders", "more-data")


def _measure_partitions(parent: Path, count: str, *more: str) -> Iterator[Figure]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(fresh_folder(parent))
        broker = MeasuredBroker(folder / "data")
        broker.more_data = [folder / name for name in more]
        stack.enter_context(broker)
        yield Figure(f"{count}: created", create_topics(broker, topic_names(TOPICS), PARTITIONS_EACH), "s")
        write_to_all(broker)
        yield Figure(f"{count}: memory after a record in each", broker.memory_mib, "MiB")
        yield Figure(f"{count}: listed", seconds_of(broker, frame(MetadataRequest(topics=None), 7)), "s")
        yield Figure(f"{count}: fetched from all", seconds_of(broker, fetch_of_all(TOPICS, PARTITIONS_EACH)), "s")
        yield Figure(f"{count}: stop, all of them written", broker.stop(LIMIT_S), "s", 4)
        drop_caches()
        broker.__enter__()
        yield Figure(f"{count}: start", broker.ready_s, "s", 4)
        yield Figure(f"{count}: memory after the start", broker.memory_mib, "MiB", 80)
        yield Figure(f"{count}: stop, nothing written since the start", broker.stop(LIMIT_S), "s")
        broker.__enter__()
        write_to_all(broker)
        broker.kill()
        drop_caches()
        broker.__enter__()
        yield Figure(f"{count}: start after kill -9", broker.ready_s, "s", 6)
        yield Figure(f"{count}: memory after that start", broker.memory_mib, "MiB", 80)
        broker.kill()


def measure_unwritten(parent: Path, _: argparse.Namespace) -> Iterator[Figure]:
    """Measure the shutdown of a broker with empty partitions."""
    with fresh_folder(parent) as folder, MeasuredBroker(folder / "data") as broker:
        create_topics(broker, topic_names(UNWRITTEN_TOPICS), PARTITIONS_EACH)
        count = UNWRITTEN_TOPICS * PARTITIONS_EACH
        yield Figure(f"{count:,} partitions that nobody wrote to: stop", broker.stop(LIMIT_S), "s", 2)


def measure_small_batches(parent: Path, asked: argparse.Namespace) -> Iterator[Figure]:
    """Measure the slowest kind of recovery, with one batch header per record. A broker has written the batches."""
    what = f"{asked.small_gigabytes:g} GB of one-record batches in {SMALL_BATCH_PARTITIONS} active segments"
    with fresh_folder(parent) as folder, MeasuredBroker(folder / "data") as broker:
        took_s = write_small_batches(broker, int(asked.small_gigabytes * GIGABYTE))
        yield Figure(f"{what}: written", took_s, "s")
        broker.kill()
        drop_caches()
        broker.__enter__()
        yield Figure(f"{what}: start after kill -9", broker.ready_s, "s", 3)
        yield Figure(f"{what}: most memory meanwhile", broker.memory_mib_max, "MiB")
        broker.kill()


def write_small_batches(broker: MeasuredBroker, size_bytes: int) -> float:
    """Write one-record batches to a new topic. Return the duration of the writes in seconds."""
    create_topics(broker, [TOPIC], SMALL_BATCH_PARTITIONS)
    batch = one_record_batch(SYSTEM_CLOCK.time_ms())
    request = produce_request([(number, batch) for number in range(SMALL_BATCH_PARTITIONS)])
    begun = time.perf_counter()
    with connected(broker) as connection:
        for _ in range(max(1, size_bytes // (len(batch) * SMALL_BATCH_PARTITIONS * PIPELINED))):
            connection.pipeline(request * PIPELINED, PIPELINED)
    return time.perf_counter() - begun


def measure_stored(parent: Path, asked: argparse.Namespace) -> Iterator[Figure]:
    """Measure broker starts with flushed and with unflushed data."""
    for gigabytes in asked.gigabytes:
        with fresh_folder(parent) as folder, stored(folder, gigabytes, STORED_PARTITIONS, flush=True) as broker:
            yield Figure(f"{gigabytes:g} GB flushed: start after kill -9", broker.ready_s, "s")
            broker.stop(LIMIT_S)
            drop_caches()
            broker.__enter__()
            yield Figure(f"{gigabytes:g} GB flushed: start after a clean stop", broker.ready_s, "s")
            broker.kill()
    with fresh_folder(parent) as folder, stored(folder, 1.0, 1, flush=False) as broker:
        yield Figure("1 GB not flushed: start after kill -9", broker.ready_s, "s")
        broker.kill()


@contextlib.contextmanager
def stored(folder: Path, gigabytes: float, partitions: int, *, flush: bool) -> Iterator[MeasuredBroker]:
    """Start a broker with the data of a killed broker."""
    broker = MeasuredBroker(folder / "data")
    with broker:
        create_topics(broker, [TOPIC], STORED_PARTITIONS)
    fill(broker.data, int(gigabytes * GIGABYTE), partitions, flush=flush)
    drop_caches()
    with broker:
        yield broker


def fill(data: Path, size_bytes: int, partitions: int, *, flush: bool) -> None:
    """Write random bytes to the logs of a stopped broker, without sparse files, and leave the logs in the state after a
    SIGKILL."""
    manager = LogManager(data, LogConfig(), SYSTEM_CLOCK, OsFileSystem())
    builder = BatchBuilder()
    while builder.size_bytes < STORED_BATCH_BYTES:
        builder.append(SYSTEM_CLOCK.time_ms(), None, secrets.token_bytes(VALUE_BYTES))
    batch = builder.build()
    for number in range(partitions):
        log = manager.get(TopicPartition(TOPIC, number))
        assert log
        for _ in range(size_bytes // partitions // len(batch)):
            log.append(batch, leader_epoch=0)
        if flush:
            log.flush()
    if flush:
        manager.checkpoint_recovery_points()
    manager.abandon()


MEASURES: dict[str, Callable[[Path, argparse.Namespace], Iterator[Figure]]] = {
    "many": measure_many,
    "folders": measure_folders,
    "unwritten": measure_unwritten,
    "small-batches": measure_small_batches,
    "stored": measure_stored,
}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = parser_of("bench.partitions", __doc__)
    parser.add_argument("measures", nargs="*", metavar="WHAT", help=f"{', '.join(MEASURES)} [all]")
    parser.add_argument("--gigabytes", type=float, nargs="*", default=[0.0, 1.0], help="sizes of `stored` [0 1]")
    parser.add_argument("--small-gigabytes", type=float, default=1.0, help="size of `small-batches` [1]")
    asked = parser.parse_args(arguments)
    refuse_unknown(parser, asked.measures, MEASURES)
    return asked


def measure_all(asked: argparse.Namespace, progress: Progress) -> Iterator[Figure]:
    """Measure all chosen figures."""
    parent = parent_of(asked)
    for name in asked.measures or MEASURES:
        for figure in MEASURES[name](parent, asked):
            progress.say(f"{figure.what}: {value_text(figure.value, figure.unit)}")
            yield figure


def main() -> int:
    """Run the command line. Return the exit code."""
    asked = parse()
    done: list[Figure] = []
    with interruptible() as interrupted:
        for figure in measure_all(asked, Progress()):
            done.append(figure)  # an interruption keeps the figures so far
    show(asked, "bench.partitions", lines(done), done)
    return interrupted.exit_code


if __name__ == "__main__":
    sys.exit(main())
