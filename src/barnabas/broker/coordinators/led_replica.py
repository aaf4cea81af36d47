"""Protocols of an internal topic and of a partition that this broker leads, as the coordinator runtime uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.coordination.values import NO_LEADER

if TYPE_CHECKING:
    from barnabas.broker.settings.topic_config import TopicConfig
    from barnabas.model import TopicPartition
    from barnabas.records.header import Buffer
    from barnabas.storage.log_appender import AppendInfo, Outcome
    from barnabas.storage.log_reader import ReadResult


class ReplicaLog(Protocol):
    """The offsets of a log."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def is_offline(self) -> bool:
        """Whether the log cannot be read, so that its offsets mean nothing."""


class LedReplica(Protocol):
    """The replica of a partition that this broker leads, in one leader epoch."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def log(self) -> ReplicaLog: ...

    @property
    def is_led(self) -> bool:
        """Whether this broker still leads, as far as it knows; False while its session is in doubt."""

    @property
    def times_fenced(self) -> int:
        """How often this has been in doubt. It shows a doubt that has begun and ended since the last look."""

    @property
    def config(self) -> TopicConfig: ...

    async def read_stored(self, offset: int, max_bytes: int) -> ReadResult:
        """Return whole batches, also from above the high watermark."""

    def check_replicas(self) -> None:
        """Raise ApiError where too few replicas are in sync to acknowledge an append."""

    def append_all(self, requests: Sequence[Buffer]) -> list[Outcome] | asyncio.Future[list[Outcome]]:
        """Append batches, each judged alone; an error is the outcome of a batch that is not in the log."""

    def append_own_batch(self, batch: bytearray) -> bool:
        """Append one batch of records with keys if it can be appended and acknowledged at once."""

    def acknowledges_at_once(self, acks: int) -> bool:
        """Whether an append needs no wait for the high watermark."""

    def when_acknowledged(self, info: AppendInfo, acks: int) -> Awaitable[None] | None:
        """Return what ends when an append is below the high watermark; None: it is already."""


class PlacedTopic(Protocol):
    """An internal topic as it is now: another object whenever something of it changes."""

    @property
    def partitions(self) -> Sequence[Any]: ...


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """How the runtime reaches its topic.

    :param current: returns the topic as it is now; None before it is made. Called for each event, so it must be fast.
    :param create: makes it.
    :param led: returns the partitions that this broker leads, by number.
    :param leader_of: returns the broker that leads a partition, or `NO_LEADER`.
    """

    name: str
    current: Callable[[], PlacedTopic | None]
    create: Callable[[], Awaitable[object]]
    led: Callable[[], Mapping[int, LedReplica]]
    leader_of: Callable[[PlacedTopic, int], int] = lambda _topic, _number: NO_LEADER
