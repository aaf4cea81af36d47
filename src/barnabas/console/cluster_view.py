"""A user's view of the cluster: what the brokers answer to this user, cached for a moment, and sampled for charts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from barnabas.client.admin.async_admin import AsyncAdmin
from barnabas.client.admin.brokers import ClusterDescription
from barnabas.client.admin.groups import GroupListing
from barnabas.client.admin.topics import TopicDescription
from barnabas.clock import Clock
from barnabas.console.cached import Cached
from barnabas.console.history import History
from barnabas.errors import BarnabasError
from barnabas.model import OffsetAndMetadata, TopicPartition

T = TypeVar("T")

AGE_S_MAX = 2.0
"""The maximum age of what a page shows, in seconds."""
SAMPLE_S = 5.0
BEGINS_S = 60.0
"""The interval between two reads of the log start offsets, which change rarely."""
SAMPLED_SHARE_MAX = 0.1
"""The maximum share of the time in which a view samples: a large cluster is sampled less often."""
CALL_S_MAX = 10.0
"""The time after which a page shows an error instead of waiting for the brokers."""
SAMPLED_GROUPS_MAX = 500

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic in a list.

    :ivar records: the number of offsets from the beginning to the end; None if it is not known.
    :ivar size: the bytes of all replicas; None if the user may not see them.
    :ivar rate: the new records per second.
    """

    name: str
    partitions: int
    replicas: int
    under_replicated: int
    offline: int
    records: int | None = None
    size: int | None = None
    rate: float | None = None


class ClusterView:
    """Asks the brokers as one user. Used on one event loop.

    :param settings: client settings under Kafka's names, with the user's credentials.
    """

    def __init__(self, settings: Mapping[str, str], clock: Clock) -> None:
        self.settings = dict(settings)
        self.admin = AsyncAdmin(self.settings)
        self._clock = clock
        self._cluster = Cached(self.admin.describe_cluster, AGE_S_MAX, clock.monotonic)
        self._topics = Cached(self._fetch_topics, AGE_S_MAX, clock.monotonic)
        self._groups = Cached(self.admin.list_groups, AGE_S_MAX, clock.monotonic)
        self._sizes = Cached(self._fetch_sizes, 10 * AGE_S_MAX, clock.monotonic)
        self._newest_sizes: Mapping[str, int] = {}
        self.ends = History()
        self.lags = History()
        self._begins: dict[str, int] = {}
        self._begins_at_s: float | None = None
        self._sampling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect, and begin to sample.

        :raises BarnabasError: no broker can be reached, or the credentials are wrong.
        """
        await self.within(self._cluster.get())
        self._sampling = asyncio.create_task(self._sample_on())

    async def close(self) -> None:
        """Stop sampling, and close the connections."""
        if self._sampling is not None:
            self._sampling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sampling
        await self.admin.close()

    async def within(self, call: Coroutine[Any, Any, T]) -> T:
        """Await a call, at most for `CALL_S_MAX`.

        :raises TimeoutError: the brokers did not answer.
        """
        async with asyncio.timeout(CALL_S_MAX):
            return await call

    async def cluster(self) -> ClusterDescription:
        return await self.within(self._cluster.get())

    async def topics(self) -> dict[str, TopicDescription]:
        """Return all topics that the user may describe, by name."""
        return await self.within(self._topics.get())

    async def with_leader(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those partitions that exist and have a leader. The brokers answer nothing about the others."""
        topics = await self.topics()
        return [where for where in places if where.topic in topics and _is_led(topics[where.topic], where.partition)]

    async def groups(self) -> list[GroupListing]:
        return await self.within(self._groups.get())

    async def rows(self) -> list[TopicRow]:
        """Return the list of topics."""
        return [self._row(topic, self._newest_sizes) for topic in (await self.topics()).values()]

    def _row(self, topic: TopicDescription, sizes: Mapping[str, int]) -> TopicRow:
        parts, end, begin = topic.partitions, self.ends.newest(topic.name), self._begins.get(topic.name)
        return TopicRow(
            topic.name,
            len(parts),
            max((len(each.replicas) for each in parts), default=0),
            sum(len(each.isr) < len(each.replicas) for each in parts),
            sum(each.leader < 0 for each in parts),
            None if end is None or begin is None else int(end) - begin,
            sizes.get(topic.name),
            self.ends.rate(topic.name),
        )

    async def _fetch_topics(self) -> dict[str, TopicDescription]:
        found = await self.admin.describe_topics(None)
        return {each.name: each for each in sorted(found, key=lambda topic: topic.name)}

    async def _fetch_sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        try:
            for folder in await self.admin.log_dirs():
                for where, size in folder.sizes.items():
                    sizes[where.topic] = sizes.get(where.topic, 0) + size
        except BarnabasError as error:
            log.debug("cannot read the sizes of topics: %s; the pages leave them out", error)
        return sizes

    # -- samples -------------------------------------------------------------------------------------------------

    async def _sample_on(self) -> None:
        while True:
            started_s = self._clock.monotonic()
            try:
                async with asyncio.timeout(6 * CALL_S_MAX):
                    await self.sample()
            except (BarnabasError, TimeoutError) as error:
                log.info("cannot sample the offsets: %s; trying again", error or "the brokers did not answer")
            took_s = self._clock.monotonic() - started_s
            await asyncio.sleep(max(SAMPLE_S, took_s / SAMPLED_SHARE_MAX) - took_s)

    async def sample(self) -> None:
        """Read the sizes and the end offsets of all topics, and the lag of the groups."""
        topics = await self._topics.get()
        self._newest_sizes = await self._sizes.get()
        places = [
            TopicPartition(name, each.partition)
            for name, topic in topics.items()
            for each in topic.partitions
            if each.leader >= 0
        ]
        ends = await self.admin.end_offsets(places)
        now_s = self._clock.time_ms() / 1000
        if self._begins_at_s is None or now_s - self._begins_at_s >= BEGINS_S or len(self._begins) != len(topics):
            self._begins = _by_topic(await self.admin.beginning_offsets(places))
            self._begins_at_s = now_s
        self.ends.note(now_s, _by_topic(ends))
        groups = [each.group for each in (await self._groups.get())[:SAMPLED_GROUPS_MAX]]
        committed = await self.admin.offsets_of_groups(groups)
        self.lags.note(now_s, {group: _lag(offsets, ends) for group, offsets in committed.items()})


def _is_led(topic: TopicDescription, partition: int) -> bool:
    return any(each.partition == partition and each.leader >= 0 for each in topic.partitions)


def _lag(offsets: Mapping[TopicPartition, OffsetAndMetadata], ends: Mapping[TopicPartition, int]) -> int:
    return sum(max(0, ends[where] - each.offset) for where, each in offsets.items() if where in ends)


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for where, offset in offsets.items():
        found[where.topic] = found.get(where.topic, 0) + offset
    return found


NewView = Callable[[Mapping[str, str]], ClusterView]
