"""Reads and writes the ledger topic of one cluster; `ledger.py` describes the entries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, TypeVar

from barnabas.client.admin.topic_changes import create_topic
from barnabas.client.consumer.async_consumer import AsyncConsumer
from barnabas.client.offset_requests import list_offsets
from barnabas.client.producer.async_producer import AsyncProducer
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.errors import ApiError, ErrorCode, TimedOutError
from barnabas.mirror.ledger import (
    LEDGER_TOPIC,
    BadEntryError,
    Claim,
    GroupMark,
    PartitionMark,
    TopicSettings,
    decode,
    encode,
)
from barnabas.mirror.mirrored_cluster import MirroredCluster
from barnabas.model import TopicPartition
from barnabas.protocol.declare import ZERO_UUID
from barnabas.protocol.messages.list_offsets import LATEST_TIMESTAMP

REPLICAS_WANTED = 3
WRITE_TIMEOUT_MS = 30_000
POLL_S = 0.5
STUCK_S = 60.0
"""The time in seconds without progress after which reading the ledger fails."""
CREATE_TIMEOUT_MS = 30_000

Entry = TypeVar("Entry", Claim, PartitionMark, GroupMark, TopicSettings)

log = logging.getLogger(__name__)


class LedgerTopic:
    """Reads a cluster's ledger to its end on request, and writes entries.

    :param writes: True for this mirror's own ledger. The source's ledger is read-only and may not exist.
    """

    def __init__(self, side: MirroredCluster, *, writes: bool, clock: Clock = SYSTEM_CLOCK) -> None:
        self._side = side
        self._clock = clock
        self._tp = TopicPartition(LEDGER_TOPIC, 0)
        self._entries: dict[str, object] = {}
        self._consumer: AsyncConsumer | None = None
        self._topic_id = ZERO_UUID
        """The topic id of the ledger that `_consumer` reads."""
        self._producer = (
            AsyncProducer(
                dict(side.settings),
                acks="all",
                linger_ms=0,
                delivery_timeout_ms=WRITE_TIMEOUT_MS,
                allow_auto_create_topics=False,  # no automatic creation: `create` creates the topic with compaction
            )
            if writes
            else None
        )
        self._turn = asyncio.Lock()

    async def create(self) -> None:
        """Create the ledger topic unless it exists."""
        view = await self._side.cluster.refresh()
        if LEDGER_TOPIC in view.topics:
            return
        try:
            await create_topic(
                self._side.cluster,
                LEDGER_TOPIC,
                partitions=1,
                replication_factor=min(REPLICAS_WANTED, len(view.brokers)),
                config={"cleanup.policy": "compact"},
                timeout_ms=CREATE_TIMEOUT_MS,
            )
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        await self._side.cluster.topic(LEDGER_TOPIC, timeout_s=CREATE_TIMEOUT_MS / 1000)

    async def refresh(self) -> None:
        """Read all entries up to the current end of the ledger.

        :raises TimedOutError: reading made no progress for `STUCK_S`.
        :raises BarnabasError: the cluster does not respond.
        """
        async with self._turn:
            (view,) = await self._side.cluster.describe([LEDGER_TOPIC])  # one topic only, to keep the response small
            is_there = bool(view.partitions)
            if not is_there and view.error.retriable and view.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise ApiError.about(view.error, f"{LEDGER_TOPIC} of the {self._side.name}")
            if not is_there or view.topic_id != self._topic_id:
                self._entries.clear()  # the ledger topic was deleted, and possibly recreated
                await self._stop_reading()
            if not is_there:
                if self._producer is not None:
                    await self.create()  # compacted; automatic creation would not compact it
                return
            self._topic_id = view.topic_id
            at = (await list_offsets(self._side.cluster, {self._tp: LATEST_TIMESTAMP}))[self._tp]
            try:
                await self._read_up_to(at.offset if at else 0)
            except TimedOutError:
                await self._stop_reading()  # without a consumer, the next refresh reads the ledger from its start
                raise

    async def _read_up_to(self, end: int) -> None:
        if self._consumer is None:
            self._consumer = AsyncConsumer(dict(self._side.settings), auto_offset_reset="earliest")
            self._consumer.assign([self._tp])
        stuck_at_s = self._clock.monotonic() + STUCK_S
        while (at := await self._consumer.position(self._tp, timeout_s=STUCK_S)) < end:
            for record in await self._consumer.poll(max_records=5_000, timeout_s=POLL_S):
                self._take(record.key, record.value)
                stuck_at_s = self._clock.monotonic() + STUCK_S
            if self._clock.monotonic() >= stuck_at_s:
                side = self._side.name
                raise TimedOutError(
                    f"cannot read {LEDGER_TOPIC} of the {side} from offset {at} to {end}: no progress for {STUCK_S:g} s"
                )

    async def _stop_reading(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            await consumer.close()

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        try:
            name, entry = decode(key, value)
        except BadEntryError as error:
            log.warning(
                "%s of the %s: skipping a record that is not an entry: %s", LEDGER_TOPIC, self._side.name, error
            )
            return
        if entry is None:
            self._entries.pop(name, None)
        else:
            self._entries[name] = entry

    def find(self, kind: type[Entry], key: str) -> Entry | None:
        """Return the last entry with this key; None if there is no valid entry."""
        value = self._entries.get(key)
        if value is None:
            return None
        try:
            return kind.read(value)
        except BadEntryError as error:
            log.warning("%s of the %s: ignoring the invalid entry %s: %s", LEDGER_TOPIC, self._side.name, key, error)
            return None

    async def write(self, entries: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Write entries and wait until all in-sync replicas have them. The value None deletes an entry.

        :raises BarnabasError: the write failed; the ledger may or may not have the entries.
        """
        if not entries:
            return
        assert self._producer is not None, "this ledger is only read"
        pairs = [encode(key, value) for key, value in entries.items()]
        sent = await self._producer.send_many(
            LEDGER_TOPIC, [value for _, value in pairs], keys=[key for key, _ in pairs], partition=0
        )
        for delivery in sent:
            await delivery
        for key, value in pairs:
            self._take(key, value)

    async def stop(self) -> None:
        await self._stop_reading()
        if self._producer is not None:
            await self._producer.close()
