"""A fetch of offsets that are not on the broker's disk waits for them, and for nothing else."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from barnabas.broker.handlers.fetch import fetch
from barnabas.errors import BarnabasError, ErrorCode, StorageError
from barnabas.model import FileRegion
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from barnabas.protocol.messages.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.records import BatchBuilder, read_records
from tests.support.fake_link import begun, call_of
from tests.support.in_process_broker import Caller, run_with_broker
from tests.support.steps import at_once

CALL = call_of(fetch, 11)
LOCAL_START = 2
LONG_MS = 60_000


class RemoteSegments:
    """Segments elsewhere, which hold the records before offset 2."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.error: BarnabasError | None = None

    async def read(self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool) -> bytes:
        await self.arrived.wait()
        if self.error is not None:
            raise self.error
        builder = BatchBuilder()
        builder.append_many(1_000, [b"remote 0", b"remote 1"])
        return bytes(builder.build())


def move_first_records_away(caller: Caller) -> RemoteSegments:
    """Append four records, and let the first two be in a remote segment."""
    caller.append(b"remote 0", b"remote 1")
    caller.append(b"local 2", b"local 3")
    log, remote = caller.broker.topics.replicas.leader("clicks", 0).log, RemoteSegments()
    log._offsets.current = log.offsets._replace(local_log_start_offset=LOCAL_START)
    log._reader._remote = remote
    return remote


def fetch_of(offset: int) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    topics = [FetchTopic(topic="clicks", partitions=[wanted])]
    return FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, max_bytes=1_000_000, topics=topics)


def fetch_now(caller: Caller, offset: int) -> Any:
    """Fetch; return the response, or what must be awaited for it."""
    return begun(fetch.bind(caller.broker.parts).handle(fetch_of(offset), CALL))


def data_of(response: FetchResponse) -> PartitionData:
    return response.responses[0].partitions[0]


def values_in(response: FetchResponse) -> list[bytes | None]:
    batches = data_of(response).records
    if isinstance(batches, FileRegion):
        batches = os.pread(batches.file.fileno(), batches.length, batches.position)
    return [record.value for record in read_records(batches, "clicks", 0)]


def test_fetch_waits_for_a_remote_segment(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        remote = move_first_records_away(caller)
        fetching = asyncio.ensure_future(fetch_now(caller, 0))
        assert values_in(fetch_now(caller, LOCAL_START)) == [b"local 2", b"local 3"]
        assert not fetching.done()
        remote.arrived.set()
        assert values_in(at_once(await fetching)) == [b"remote 0", b"remote 1"]

    run_with_broker(tmp_path, scenario)


def test_remote_segment_that_cannot_be_read_is_the_error_of_its_partition(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        remote = move_first_records_away(caller)
        remote.error = StorageError("the store does not answer")
        remote.arrived.set()
        response = at_once(await fetch_now(caller, 0))
        assert data_of(response).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert values_in(fetch_now(caller, LOCAL_START)) == [b"local 2", b"local 3"]

    run_with_broker(tmp_path, scenario)


def test_start_of_the_local_segments_is_an_offset_of_its_own(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        move_first_records_away(caller)
        for timestamp, offset in ((EARLIEST_TIMESTAMP, 0), (EARLIEST_LOCAL_TIMESTAMP, LOCAL_START)):
            wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="clicks", partitions=[wanted])])
            response = await caller.call(request, 9)
            assert response.topics[0].partitions[0].offset == offset

    run_with_broker(tmp_path, scenario)
