"""The topic that holds what the registry knows: read by all registries, written by one of them.

A record counts once it was read back, so that all that a registry answers is in the log, in the order of the log. That
one writes alone is settled by the group protocol, which cannot know of a writer that slept through the loss of its
place. So each write says where in the log it expects to land: if others have written there meanwhile, what was written
is taken back, and who asked is told to try again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.client.admin.topic_changes import create_topic
from barnabas.client.cluster import Cluster
from barnabas.client.config import AdminConfig, make_config
from barnabas.client.consumer.async_consumer import AsyncConsumer
from barnabas.client.dialing import dial_with
from barnabas.client.producer.async_producer import AsyncProducer
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BarnabasError, ErrorCode, KafkaError, TimedOutError
from barnabas.model import TopicPartition
from barnabas.registry import records
from barnabas.registry.errors import RegistryError
from barnabas.registry.records import Record, UnknownRecordError
from barnabas.registry.state import RegistryState

REPLICAS_WANTED = 3
WRITE_TIMEOUT_S = 10.0
"""How long a write may take until it was read back."""
AGAIN_S = 1.0
"""So long after an error the topic is read again."""
REMEMBERED_MAX = 1_000
"""Records read last, to know what others wrote where a write was expected."""

log = logging.getLogger(__name__)


class SchemaTopic:
    """Reads the topic into a state, and appends to it.

    :param bootstrap: where brokers are.
    :param settings: of the clients, by Kafka's names.
    """

    def __init__(self, bootstrap: str, name: str, state: RegistryState, settings: Mapping[str, str]) -> None:
        self.name = name
        self.state = state
        self.offset = 0
        """That of the next record to be read."""
        given = {**settings, "bootstrap.servers": bootstrap}
        config = make_config(AdminConfig, given, {})
        self.cluster = Cluster(config, dial=dial_with(config), clock=SYSTEM_CLOCK, random=random.random)
        self._tp = TopicPartition(name, 0)
        timeout_ms = round(WRITE_TIMEOUT_S * 1000)
        self._producer = AsyncProducer(
            given,
            acks="all",
            linger_ms=0,
            delivery_timeout_ms=timeout_ms,
            allow_auto_create_topics=False,  # `start` creates the topic, compacted
        )
        self._consumer = AsyncConsumer(given, auto_offset_reset="earliest", fetch_max_wait_ms=500)
        self._values: dict[bytes, bytes | None] = {}
        self._keys = KeyEncodings()
        self._last: deque[tuple[int, bytes, bytes | None]] = deque(maxlen=REMEMBERED_MAX)
        self._progress = asyncio.Condition()
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Make the topic if there is none, and read all that is in it.

        :raises KafkaError: it cannot be made.
        :raises TimedOutError: no broker answers.
        """
        await self.cluster.refresh()
        replicas = min(REPLICAS_WANTED, len(self.cluster.view.brokers))
        try:
            await create_topic(
                self.cluster,
                self.name,
                partitions=1,
                replication_factor=replicas,
                config={"cleanup.policy": "compact"},
                timeout_ms=30_000,
            )
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        self._consumer.assign([self._tp])
        end = (await self._consumer.end_offsets([self._tp]))[self._tp]
        self._reading = asyncio.create_task(self._read())
        async with self._progress:
            await self._progress.wait_for(lambda: self.offset >= end or self._has_ended)
        if self._has_ended:
            await self._reading

    async def stop(self) -> None:
        """Stop reading and writing."""
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
        await self._consumer.close()
        await self._producer.close()
        self.cluster.close()

    @property
    def _has_ended(self) -> bool:
        return self._reading is not None and self._reading.done()

    # --- reading ----------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            try:
                read = await self._consumer.poll(max_records=5_000, timeout_s=float("inf"))
                position = await self._consumer.position(self._tp)
            except BarnabasError as error:
                log.warning("topic %s cannot be read now: %s", self.name, error)
                await asyncio.sleep(AGAIN_S)
                continue
            for record in read:
                self._take(record.offset, record.key, record.value)
            async with self._progress:
                # The position goes past what compaction has taken away.
                self.offset = max(self.offset, position)
                self._progress.notify_all()

    def _take(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        try:
            record = Record.decode(key, value)
            self.state.apply(record)
        except UnknownRecordError as error:
            log.warning("%s: skipped the unknown record at offset %d: %s", self._tp, offset, error)
        else:
            assert key is not None
            self._keys.note(record, key, value)
            if record.key["keytype"] != records.NOOP:
                self._last.append((offset, key, value))
        if key is not None:
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value

    async def wait_until_read(self, offset: int, timeout_s: float = WRITE_TIMEOUT_S) -> None:
        """Wait until all before an offset was read.

        :raises RegistryError: 50002.
        """
        try:
            async with asyncio.timeout(timeout_s), self._progress:
                await self._progress.wait_for(lambda: self.offset >= offset)
        except TimeoutError:
            raise RegistryError.timed_out(f"{self.name} was not read up to offset {offset}") from None

    # --- writing ----------------------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Read all that was written before now, by writing a record and waiting for it.

        :raises RegistryError: 50001, 50002.
        """
        first, count = await self._send([records.noop()])
        await self.wait_until_read(first + count)

    async def append(self, change: Sequence[Record]) -> None:
        """Write records, and wait until they were read.

        :raises RegistryError: 50001, 50002; 50004: somebody else has written at the same time, and this was undone.
        """
        if not change:
            return
        expected = self.offset
        encoded = self._keys.encoded(change)
        before = {key: self._values.get(key) for key, _ in encoded}
        first, count = await self._send_bytes(encoded)
        await self.wait_until_read(first + count)
        others = [entry for entry in self._last if expected <= entry[0] < first]
        if others:
            log.warning("%s: another registry has written as well; what was written here is taken back", self._tp)
            for _, key, value in others:
                if key in before:
                    before[key] = value
            await self._send_bytes(list(before.items()))
            raise RegistryError.unknown_leader()

    async def _send(self, change: Sequence[Record]) -> tuple[int, int]:
        return await self._send_bytes([record.encoded() for record in change])

    async def _send_bytes(self, encoded: list[tuple[bytes, bytes | None]]) -> tuple[int, int]:
        try:
            sent = await self._producer.send_many(
                self.name, [value for _, value in encoded], keys=[key for key, _ in encoded], partition=0
            )
            outcomes: list[Any] = [await delivery for delivery in sent]
        except TimedOutError as error:
            raise RegistryError.timed_out(str(error)) from error
        except BarnabasError as error:
            raise RegistryError.store(str(error)) from error
        return outcomes[0].offset, len(outcomes)


class KeyEncodings:
    """The encodings of keys of which the topic holds a value, apart from the canonical ones.

    A change must replace all encodings of its key: compaction keeps the others, and the old value returns.
    """

    def __init__(self) -> None:
        self._of: dict[bytes, set[bytes]] = {}
        self._left_over: set[bytes] = set()

    def note(self, record: Record, key: bytes, value: bytes | None) -> None:
        """Note a record of the topic."""
        canonical = records.canonical_key(record.key)
        if canonical is None:
            return
        known = self._of.setdefault(canonical, set())
        if value is None:
            known.discard(key)
            self._left_over.discard(key)
            self._left_over |= known
        else:
            known.add(key)
            self._left_over -= known
        if not known:
            del self._of[canonical]

    def encoded(self, change: Sequence[Record]) -> list[tuple[bytes, bytes | None]]:
        """Return the bytes of a change, with the same value for all other encodings of its keys.

        Another registry may have deleted one encoding of a key: deletions of the encodings that are left come first.
        """
        sent: list[tuple[bytes, bytes | None]] = [(key, None) for key in sorted(self._left_over)]
        for record in change:
            key, value = record.encoded()
            sent += [(other, value) for other in sorted(self._of.get(key, set()) - {key})]
            sent.append((key, value))
        return sent
