"""The topic `_schemas`, which all registries read and write.

A registry applies its own records only after it has read them back, so its responses follow the order of the log. If
several registries write at the same time, the first change in the log takes effect (`change_order.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.client.admin.topic_changes import create_topic
from barnabas.client.cluster import Cluster, dial_with
from barnabas.client.config import AdminConfig, make_config
from barnabas.client.consumer.async_consumer import AsyncConsumer
from barnabas.client.offset_requests import list_offsets
from barnabas.client.producer.async_producer import AsyncProducer
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ApiError, BarnabasError, ErrorCode, TimedOutError
from barnabas.log_lines import LimitedLog
from barnabas.model import TopicPartition
from barnabas.protocol.messages.list_offsets import LATEST_TIMESTAMP
from barnabas.records import Record as ReadRecord
from barnabas.registry.change_order import ChangeHeader, Effect, LogEntry, SchemaLog
from barnabas.registry.errors import RegistryError
from barnabas.registry.records import Record, UnknownRecordError
from barnabas.registry.state import RegistryState

REPLICAS_WANTED = 3
WRITE_TIMEOUT_S = 10.0
"""The time limit in seconds for a write, including reading the records back."""
AGAIN_S = 1.0
"""The pause in seconds before the topic is read again after an error."""
BATCH_BYTES = 1_000_000
"""The batch size in bytes; all records of a change fit into one batch, so no other change can be stored between
them."""
REPAIR_ATTEMPTS = 10
"""The maximum number of repair attempts; after that, the next change of any registry repairs the remaining keys."""

log = logging.getLogger(__name__)


class OvertakenError(Exception):
    """Another registry changed the topic at the same time. So this change has no effect and must be planned again."""


class SchemaTopic:
    """Applies the records of the topic to a `RegistryState`, and appends records to the topic.

    :param bootstrap: addresses of brokers.
    :param settings: client settings under Kafka's names.
    """

    def __init__(self, bootstrap: str, name: str, state: RegistryState, settings: Mapping[str, str]) -> None:
        self.name = name
        self._log = SchemaLog(state)
        given = {**settings, "bootstrap.servers": bootstrap}
        config = make_config(AdminConfig, given, {})
        self.cluster = Cluster(config, dial=dial_with(config), clock=SYSTEM_CLOCK, random=random.random)
        self._tp = TopicPartition(name, 0)
        timeout_ms = round(WRITE_TIMEOUT_S * 1000)
        self._producer = AsyncProducer(
            given,
            acks="all",
            linger_ms=0,
            batch_size=BATCH_BYTES,
            delivery_timeout_ms=timeout_ms,
            allow_auto_create_topics=False,  # no automatic creation: `start` creates the topic with compaction
        )
        self._consumer = AsyncConsumer(given, auto_offset_reset="earliest", fetch_max_wait_ms=500)
        self._awaited: dict[str, dict[int, Effect]] = {}
        """For each pending change, the effects of its records by offset."""
        self._unknown = LimitedLog(log, SYSTEM_CLOCK.monotonic, "skipped %d further unknown records")
        self._progress = asyncio.Condition()
        self._reading: asyncio.Task[None] | None = None
        self.failure = ""
        """The error of the last read; empty after a successful read."""

    @property
    def next_offset(self) -> int:
        """The offset of the next record to read."""
        return self._log.next_offset

    async def start(self) -> None:
        """Create the topic if necessary, and read all of its records.

        :raises ApiError: the topic cannot be created.
        :raises TimedOutError: no broker responds.
        """
        await self.cluster.refresh()
        if not await self._exists():
            await self._create()
        self._consumer.assign([self._tp])
        end = (await self._consumer.end_offsets([self._tp]))[self._tp]
        self._reading = asyncio.create_task(self._read())
        async with self._progress:
            await self._progress.wait_for(lambda: self._log.next_offset >= end or self._has_ended)
        if self._has_ended:
            await self._reading
        await self.repair()

    async def _exists(self) -> bool:
        """Return whether the topic exists. A registry without permission to create it needs no such permission then.

        :raises ApiError: the registry may not describe the topic.
        """
        (found,) = await self.cluster.describe([self.name])
        if found.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise ApiError(found.error, f"allow the principal of the registry to READ and WRITE topic {self.name}")
        return found.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def _create(self) -> None:
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
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def stop(self) -> None:
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
                log.warning("cannot read topic %s: %s; retrying in %g s", self.name, error, AGAIN_S)
                self.failure = str(error)
                await asyncio.sleep(AGAIN_S)
                continue
            self.failure = ""
            for record in read:
                self._take(record)
            # The position also advances over records that compaction has removed.
            self._log.next_offset = max(self._log.next_offset, position)
            async with self._progress:
                self._progress.notify_all()

    def _take(self, record: ReadRecord) -> None:
        change_header = ChangeHeader.of(record.headers)
        try:
            effect = self._log.take(record.offset, record.key, record.value, change_header)
        except UnknownRecordError as error:
            message = "%s: skipping an unknown record at offset %d: %s"
            self._unknown.warning(message, self._tp, record.offset, error)
            return
        if change_header is not None and change_header.change in self._awaited:
            self._awaited[change_header.change][record.offset] = effect

    async def wait_until_read(self, offset: int, timeout_s: float = WRITE_TIMEOUT_S) -> None:
        """Wait until this registry has read all records before an offset.

        :raises RegistryError: the wait timed out (50002).
        """
        try:
            async with asyncio.timeout(timeout_s), self._progress:
                await self._progress.wait_for(lambda: self._log.next_offset >= offset)
        except TimeoutError:
            raise RegistryError.timed_out(f"{self.name} was not read up to offset {offset}") from None

    # --- writing ----------------------------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Read all records that any registry has written before this call.

        :raises RegistryError: the topic cannot be read (50001), or the read timed out (50002).
        """
        try:
            end = (await list_offsets(self.cluster, {self._tp: LATEST_TIMESTAMP}))[self._tp]
        except TimedOutError as error:
            raise RegistryError.timed_out(str(error)) from error
        except BarnabasError as error:
            raise RegistryError.store(str(error)) from error
        if end is not None:
            await self.wait_until_read(end.offset)

    async def append(self, change: Sequence[Record]) -> None:
        """Write a change that was planned from the current state, and wait until this registry has read it back.

        :raises OvertakenError: the change has no effect.
        :raises RegistryError: the topic cannot be written (50001), or the write timed out (50002).
        """
        if change:
            await self._append(change)

    async def repair(self) -> None:
        """Rewrite the values of keys whose last record has no effect. If the repair fails, the next change repairs
        these keys."""
        for _attempt in range(REPAIR_ATTEMPTS):
            if not self._log.needs_repairs:
                return
            try:
                await self._append([])
            except OvertakenError:
                continue
            except RegistryError as error:
                log.warning("%s: cannot repair overtaken keys: %s; the next change retries", self._tp, error.message)
                return

    async def _append(self, change: Sequence[Record]) -> None:
        name = f"{random.getrandbits(64):016x}"
        entries = self._log.entries(name, change)
        effects: dict[int, Effect] = {}
        self._awaited[name] = effects
        try:
            first, end = await self._send(entries)
            await self.wait_until_read(end)
        finally:
            del self._awaited[name]
        if any(effects.get(offset) is Effect.NOTHING for offset in range(first, end)):
            log.info("%s: another registry wrote at the same time; planning the change again", self._tp)
            raise OvertakenError

    async def _send(self, entries: Sequence[LogEntry]) -> tuple[int, int]:
        """Write entries in one batch; return the offset of the first entry, and the offset after the last entry."""
        values, keys = [entry.value for entry in entries], [entry.key for entry in entries]
        headers = [[entry.header] for entry in entries]
        try:
            deliveries = await self._producer.send_many(self.name, values, keys=keys, headers=headers, partition=0)
            outcomes: list[Any] = [await delivery for delivery in deliveries]
        except TimedOutError as error:
            raise RegistryError.timed_out(str(error)) from error
        except BarnabasError as error:
            raise RegistryError.store(str(error)) from error
        return outcomes[0].offset, outcomes[-1].offset + 1
