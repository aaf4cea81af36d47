"""Parts of two or more brokers in one event loop, of which some lead and some follow."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

from barnabas.broker.leader_replica import LeaderReplica
from barnabas.errors import ApiError, ErrorCode
from barnabas.records import BatchBuilder
from barnabas.records.header import iter_headers
from barnabas.storage import Log

TOPIC = "clicks"
TOPIC_ID = uuid.UUID(int=7)
TIMEOUT_S = 60


def batch(value: bytes = b"value", count: int = 1) -> bytearray:
    """A batch as a producer sends it."""
    builder = BatchBuilder()
    builder.append_many(1_000, [value] * count)
    return bytearray(builder.build())


class LedTopics:
    """As much of a broker's topics as followers ask for."""

    def __init__(self) -> None:
        self.partitions: dict[int, LeaderReplica] = {}

    def name_of(self, topic_id: bytes) -> str:
        if topic_id != TOPIC_ID.bytes:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
        return TOPIC

    def leader(self, _name: str, number: int) -> LeaderReplica:
        if number not in self.partitions:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "led by another broker")
        return self.partitions[number]


async def until(condition: Callable[[], object]) -> None:
    """Return when something has come true."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.001)


def batches(log: Log) -> dict[int, bytes]:
    """Return all batches of a log, by their base offset."""
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while region := log.read(offset, 1 << 20, log.log_end_offset).batches:
        data = log.bytes_of(region)
        for position, header in iter_headers(data):
            found[header.base_offset] = data[position : position + header.size]
            offset = header.next_offset
    return found
