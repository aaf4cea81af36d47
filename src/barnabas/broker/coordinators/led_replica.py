"""The interface between the coordinator runtime and the broker: an internal topic, and the partitions of it that the
broker leads.
"""

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
    """The offsets of a replica's log."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def is_offline(self) -> bool:
        """True if the log is unreadable, so that its offsets are not valid."""


class LedReplica(Protocol):
    """This broker's replica of a partition that it leads, in one leader epoch."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def log(self) -> ReplicaLog: ...

    @property
    def is_led(self) -> bool:
        """True if this broker leads the partition to its knowledge; False if its metadata store session may have
        expired.
        """

    @property
    def times_fenced(self) -> int:
        """The number of times that this broker may have lost its leadership.

        A changed number reveals this even between two checks.
        """

    @property
    def config(self) -> TopicConfig: ...

    async def read_stored(self, offset: int, max_bytes: int) -> ReadResult:
        """Read whole batches from an offset, including batches above the high watermark."""

    def check_replicas(self) -> None:
        """Check that enough replicas are in sync to acknowledge an append.

        :raises ApiError: too few replicas are in sync.
        """

    def append_all(self, requests: Sequence[Buffer]) -> list[Outcome] | asyncio.Future[list[Outcome]]:
        """Append batches independently of each other. The outcome of a batch is an error if it was not appended."""

    def append_own_batch(self, batch: bytearray) -> bool:
        """Append a batch of keyed records if this is possible without waiting.

        Return whether the batch was appended.
        """

    def acknowledges_at_once(self, acks: int) -> bool:
        """Return whether appends with these acks are acknowledged without waiting for the high watermark."""

    def when_acknowledged(self, info: AppendInfo, acks: int) -> Awaitable[None] | None:
        """Return an awaitable that completes when the append is below the high watermark, or None if it already is."""


class PlacedTopic(Protocol):
    """The current metadata of an internal topic. Each change creates a new object."""

    @property
    def partitions(self) -> Sequence[Any]: ...


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """The functions through which the coordinator runtime uses its internal topic.

    :param current: returns the current topic, or None if it does not exist. The runtime calls this function for each
        event, so it must be fast.
    :param create: creates the topic.
    :param led: returns the partitions that this broker leads, by partition number.
    :param leader_of: returns the broker id of a partition's leader, or `NO_LEADER`.
    """

    name: str
    current: Callable[[], PlacedTopic | None]
    create: Callable[[], Awaitable[object]]
    led: Callable[[], Mapping[int, LedReplica]]
    leader_of: Callable[[PlacedTopic, int], int] = lambda _topic, _number: NO_LEADER
