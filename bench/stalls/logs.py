"""Scenarios that make a broker work on its logs: segment rolls, missing indexes, searches by time, compression,
retention."""

from __future__ import annotations

import contextlib
import os
import random
import struct
import time

from barnabas.clock import SYSTEM_CLOCK
from barnabas.model import TopicPartition
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.incremental_alter_configs import (
    SET,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    IncrementallyAlterableConfig,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.records import BatchBuilder, Compression, read_header
from barnabas.records.header import pack_header, write_crc
from barnabas.storage.checkpoints import EpochStart, encode_leader_epochs, encode_offsets
from barnabas.storage.file_names import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_name,
)
from bench.segment_files import LEADER_EPOCH, one_record_batch, write_segment
from bench.stalls.attacks import TOPIC_RESOURCE
from bench.stalls.connection import frame, summary_of_all
from bench.stalls.produce_frames import VERSION, batch_of, produce_request
from bench.stalls.stage import TOPIC, Act, Scenario, Stage

MEGABYTE = 1_000_000
SEARCHED_REQUESTS = 64
WRONG_TIME_MS = 1_000
SEALED_BATCHES = 1_500_000
CUT_SEGMENTS = 8
TIME_ENTRY = struct.Struct(">qi")
"""An entry of a time index: the largest timestamp so far, and the offset of its record relative to the segment's base
offset."""
SLOW_DISK_REQUESTS = 200
SLOW_DISK_PACE_S = 0.1
COMPRESSED_REQUESTS = 10
REPEATED_BYTES, EXPANDED_TIMES = 10_000, 1_500
ROLLS = 3_000
PRODUCER_IDS = 150_000
OLD_SEGMENTS = 3_000
DAY_MS = 24 * 3600 * 1000
LOOK_S = 0.05
FSYNC_S = "0.5"


def _search_by_time(stage: Stage) -> Act:
    """Search for a timestamp that is in the range of each batch header, but that no record has."""
    stage.create_topic()
    now_ms = SYSTEM_CLOCK.time_ms()
    batch = bytearray(batch_of(MEGABYTE, b"", now_ms))
    pack_header(batch, read_header(batch)._replace(max_timestamp_ms=now_ms + WRONG_TIME_MS))
    write_crc(batch, 0, len(batch))
    connection = stage.connect()
    request = produce_request([(0, batch)])
    for _ in range(SEARCHED_REQUESTS):
        connection.attack(request, ProduceResponse, VERSION)
    partition = ListOffsetsPartition(partition_index=0, timestamp=now_ms + WRONG_TIME_MS // 2)
    topics = [ListOffsetsTopic(name=TOPIC, partitions=[partition])]
    search = frame(ListOffsetsRequest(replica_id=-1, topics=topics), 2)
    return lambda: connection.attack(search, ListOffsetsResponse, 2)


def _fetch_request(offset: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=MEGABYTE)
    topics = [FetchTopic(topic=TOPIC, partitions=[partition])]
    return frame(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), 4)


def _write_flushed(stage: Stage, segments: int, batches: int, timestamp_ms: int) -> int:
    """Write flushed segments without offset indexes to the log of a stopped broker.

    :returns: the offset after them.
    """
    folder, offset = stage.folder(), 0
    batch = one_record_batch(timestamp_ms)
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX):
        with contextlib.suppress(FileNotFoundError):
            (folder / offset_name(0, suffix)).rename(folder / offset_name(segments * batches, suffix))
    for _ in range(segments):
        (folder / offset_name(offset, TIME_INDEX_SUFFIX)).write_bytes(TIME_ENTRY.pack(timestamp_ms, batches - 1))
        offset = write_segment(folder, offset, batch, batches)
    (folder / offset_name(offset, LOG_SUFFIX)).touch()
    (folder / LEADER_EPOCH_CHECKPOINT).write_bytes(encode_leader_epochs([EpochStart(LEADER_EPOCH, 0)]))
    points = encode_offsets({TopicPartition(TOPIC, 0): offset})
    (stage.data / RECOVERY_POINT_CHECKPOINT).write_bytes(points)
    return offset


def _fetch_without_index(stage: Stage) -> Act:
    """Fetch near the end of an inactive segment without an offset index."""
    stage.create_topic()
    with stage.stopped():
        end_offset = _write_flushed(stage, 1, SEALED_BATCHES, SYSTEM_CLOCK.time_ms())
    connection = stage.connect()
    return lambda: connection.attack(_fetch_request(end_offset - 2), FetchResponse, 4)


def _cut_index(stage: Stage) -> Act:
    """Truncate the index files of inactive segments while the broker uses them."""
    stage.create_topic(segment_bytes=str(4 * MEGABYTE))
    connection = stage.connect()
    batch = batch_of(10_000, b"x" * 100)
    records = read_header(batch).record_count
    count = CUT_SEGMENTS * 4 * MEGABYTE // len(batch)
    connection.pipeline(produce_request([(0, batch)]) * count, count)
    offsets = range(0, count * records // 2, count * records // 100)
    requests = b"".join(map(_fetch_request, offsets))
    connection.pipeline(requests, len(offsets))

    def cut_and_read() -> str:
        for index in stage.folder().glob(f"*{INDEX_SUFFIX}"):
            os.truncate(index, 0)
        connection.pipeline(requests, len(offsets))
        return f"{len(offsets)} fetches"

    return cut_and_read


def _roll_on_slow_disk(stage: Stage) -> Act:
    """Write so fast that segments roll during flushes, which store indexes and producer snapshots (every 16 MiB)."""
    stage.create_topic(segment_bytes=str(32 * MEGABYTE), flush_ms="1")
    connection = stage.connect()
    request = produce_request([(0, batch_of(MEGABYTE, b"x" * 1000))])

    def write() -> str:
        due_s = time.monotonic()
        for _ in range(SLOW_DISK_REQUESTS):
            connection.attack(request, ProduceResponse, VERSION)
            due_s += SLOW_DISK_PACE_S
            time.sleep(max(0.0, due_s - time.monotonic()))
        return f"{SLOW_DISK_REQUESTS} MB written"

    return write


def _compress(stage: Stage) -> Act:
    """Send batches of 1 MB of JSON from a producer that does not compress."""
    builder, number = BatchBuilder(), 0
    while builder.size_bytes < MEGABYTE:
        value = b'{"user": %d, "path": "/clicks/%d", "ms": %d}'
        fields = (number * 7919 % 10_007, number, number * number % 9_973)
        builder.append(SYSTEM_CLOCK.time_ms(), None, value % fields)
        number += 1
    return _send_to_compressed(stage, bytes(builder.build()))


def _compress_expanding(stage: Stage) -> Act:
    """Send small batches that are large when they are decompressed."""
    builder = BatchBuilder(Compression.ZSTD)
    builder.append(SYSTEM_CLOCK.time_ms(), None, random.Random(1).randbytes(REPEATED_BYTES) * EXPANDED_TIMES)
    return _send_to_compressed(stage, bytes(builder.build()))


def _send_to_compressed(stage: Stage, batch: bytes) -> Act:
    stage.create_topic(compression_type="gzip")
    connection = stage.connect()
    request = produce_request([(0, batch)])
    return lambda: summary_of_all(
        [connection.attack(request, ProduceResponse, VERSION) for _ in range(COMPRESSED_REQUESTS)]
    )


def _roll_often(stage: Stage) -> Act:
    """Send batches that are so large that each one needs its own segment."""
    batch = batch_of(1_000, b"x" * 900)
    stage.create_topic(segment_bytes=str(len(batch) + 1))
    connection = stage.connect()
    requests = produce_request([(0, batch)]) * ROLLS

    def roll() -> str:
        connection.pipeline(requests, ROLLS)
        return f"{len(list(stage.folder().glob('*.log'))):,} segments"

    return roll


def _roll_with_producers(stage: Stage) -> Act:
    """Roll a segment once in a log with very many idempotent producers."""
    builder = BatchBuilder()
    builder.append(SYSTEM_CLOCK.time_ms(), None, b"")
    size = len(builder.build())
    stage.create_topic(segment_bytes=str(size * PRODUCER_IDS + size // 2))
    connection = stage.connect()
    for begin in range(0, PRODUCER_IDS, 10_000):
        batches = (builder.build(producer, 0, 0) for producer in range(begin, begin + 10_000))
        connection.pipeline(b"".join(produce_request([(0, batch)]) for batch in batches), 10_000)
    roll = produce_request([(0, builder.build())])

    def act() -> str:
        answer = connection.attack(roll, ProduceResponse, VERSION)
        return f"{answer}, {len(list(stage.folder().glob('*.log')))} segments"

    return act


def _write_at_once(stage: Stage) -> Act:
    """Send a request of the maximum size, with a batch for each of many partitions."""
    batch = batch_of(MEGABYTE, b"x" * 1000)
    stage.create_topic(partitions=100)
    request = produce_request([(number, batch) for number in range(100)])
    connection = stage.connect()
    return lambda: f"{len(request) / 1e6:.0f} MB sent, {connection.attack(request, ProduceResponse, VERSION)}"


def _write_one_batch(stage: Stage) -> Act:
    """Send a batch of the maximum size."""
    stage.create_topic(max_message_bytes=str(100 * MEGABYTE))
    request = produce_request([(0, batch_of(100 * MEGABYTE - 1000, b"x" * MEGABYTE))])
    connection = stage.connect()
    return lambda: f"{len(request) / 1e6:.0f} MB sent, {connection.attack(request, ProduceResponse, VERSION)}"


def _delete_old_segments(stage: Stage) -> Act:
    """Let retention delete thousands of old segments of one log."""
    stage.create_topic(retention_ms="-1")
    with stage.stopped():
        _write_flushed(stage, OLD_SEGMENTS, 1, SYSTEM_CLOCK.time_ms() - DAY_MS)
    change = IncrementallyAlterableConfig(name="retention.ms", config_operation=SET, value="1000")
    resource = IncrementalAlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)

    def delete() -> str:
        stage.ask(request, 1, IncrementalAlterConfigsResponse)
        while len(os.listdir(stage.folder())) > 20:  # noqa: PTH208  # pathlib is slower
            stage.deadline.left_s()
            time.sleep(LOOK_S)
        return f"{OLD_SEGMENTS:,} segments deleted"

    return delete


SCENARIOS = (
    Scenario("search-by-time", "ListOffsets by time over 64 MB whose headers claim a wrong time", _search_by_time),
    Scenario("fetch-without-index", "Fetch in a sealed segment without index, 1.5 M batches", _fetch_without_index),
    Scenario("cut-index", "Fetches while index files are cut short", _cut_index),
    Scenario(
        "roll-on-slow-disk",
        "rolls while flushes store indexes, fsync takes 0.5 s",
        _roll_on_slow_disk,
        program=("-m", "bench.stalls.slow_disk", FSYNC_S),
    ),
    Scenario("compress-batches", "batches of 1 MB for a topic that is compressed with gzip", _compress),
    Scenario("compress-expanding", "batches of 15 MB when decompressed for the same topic", _compress_expanding),
    Scenario("roll-often", "3,000 rolls", _roll_often),
    Scenario("roll-with-producers", "a roll with 150,000 producer ids", _roll_with_producers),
    Scenario("large-produce", "Produce of 100 MB, 100 batches", _write_at_once),
    Scenario("large-batch", "Produce of 100 MB, one batch", _write_one_batch),
    Scenario(
        "delete-old-segments",
        "retention deletes 3,000 segments",
        _delete_old_segments,
        {"log_retention_check_interval_ms": "500", "file_delete_delay_ms": "500"},
    ),
)
