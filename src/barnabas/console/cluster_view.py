"""A user's view of the cluster: what the brokers answer to this user, cached for a moment, and sampled for charts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
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
from barnabas.model import TopicPartition

T = TypeVar("T")

AGE_S_MAX = 2.0
"""The maximum age of what a page shows, in seconds."""
SAMPLE_S = 5.0
CALL_S_MAX = 15.0
"""The time after which a page shows an error instead of waiting for the brokers."""
SAMPLED_GROUPS_MAX = 500
GROUPS_AT_ONCE = 20

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
        self.ends = History()
        self.lags = History()
        self._begins: dict[str, int] = {}
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

    async def groups(self) -> list[GroupListing]:
        return await self.within(self._groups.get())

    async def rows(self) -> list[TopicRow]:
        """Return the list of topics."""
        topics, sizes = await self.topics(), await self.within(self._sizes.get())
        return [self._row(topic, sizes) for topic in topics.values()]

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
            try:
                async with asyncio.timeout(CALL_S_MAX):
                    await self.sample()
            except (BarnabasError, TimeoutError) as error:
                log.info("cannot sample the offsets: %s; trying again", error or "the brokers did not answer")
            await asyncio.sleep(SAMPLE_S)

    async def sample(self) -> None:
        """Read the end offsets of all topics, and the lag of the groups."""
        topics = await self._topics.get()
        places = [TopicPartition(name, each.partition) for name, topic in topics.items() for each in topic.partitions]
        ends, begins = await asyncio.gather(self.admin.end_offsets(places), self.admin.beginning_offsets(places))
        now_s = self._clock.time_ms() / 1000
        self._begins = _by_topic(begins)
        self.ends.note(now_s, _by_topic(ends))
        groups = (await self._groups.get())[:SAMPLED_GROUPS_MAX]
        lags: dict[str, float] = {}
        for start in range(0, len(groups), GROUPS_AT_ONCE):
            portion = groups[start : start + GROUPS_AT_ONCE]
            found = await asyncio.gather(*(self._lag_of(each.group, ends) for each in portion))
            lags |= {group: lag for group, lag in found if lag is not None}
        self.lags.note(now_s, lags)

    async def _lag_of(self, group: str, ends: Mapping[TopicPartition, int]) -> tuple[str, int | None]:
        try:
            offsets = await self.admin.group_offsets(group)
        except BarnabasError:
            return group, None
        return group, sum(max(0, ends[where] - each.offset) for where, each in offsets.items() if where in ends)


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for where, offset in offsets.items():
        found[where.topic] = found.get(where.topic, 0) + offset
    return found


NewView = Callable[[Mapping[str, str]], ClusterView]
