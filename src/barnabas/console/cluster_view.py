"""A user's view of the cluster: what the brokers answer to this user, cached for a moment, and sampled for charts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from barnabas.client.admin.async_admin import AsyncAdmin
from barnabas.client.admin.brokers import ClusterDescription
from barnabas.client.admin.groups import GroupListing
from barnabas.client.admin.share_groups import SHARE
from barnabas.client.admin.topics import TopicDescription
from barnabas.client.admin.transactions import TransactionDescription, TransactionListing
from barnabas.clock import Clock
from barnabas.console.cached import Cached
from barnabas.console.elections import Elections
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
REQUEST_MS = 5_000
"""The time limit of a request, unless the settings have one: after it, the client gives up the connection to a broker
that hangs, and asks another. It is half of `CALL_S_MAX`, so that a page can still come from the other broker.
"""
ANSWER_S_MAX = 5.0
"""The time that a page waits for one of several brokers before it goes on without the broker's part."""
SAMPLED_GROUPS_MAX = 500
SAMPLED_SHARE_GROUPS_MAX = 50
"""The number of share groups whose lag is sampled: each costs the brokers a request of their own."""
VERSIONS_S = 60.0
"""The maximum age of the APIs that the brokers serve."""
DESCRIBED_TRANSACTIONS_MAX = 2_000
ELIGIBLE_TOPICS_MAX = 2_000
"""The number of topics whose eligible leader replicas are sampled, of those with replicas out of sync."""

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


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """A transactional id in a list.

    :ivar described: its state; None if there are too many transactional ids to describe all.
    :ivar open_s: the seconds since the open transaction began; None without one.
    """

    listed: TransactionListing
    described: TransactionDescription | None
    open_s: float | None

    @property
    def name(self) -> str:
        return self.listed.transactional_id

    @property
    def state(self) -> str:
        return self.listed.state if self.described is None else self.described.state

    @property
    def producer_id(self) -> int:
        return self.listed.producer_id if self.described is None else self.described.producer_id

    @property
    def coordinator(self) -> int:
        return self.listed.coordinator

    @property
    def is_open(self) -> bool:
        return (self.listed if self.described is None else self.described).is_open

    @property
    def is_late(self) -> bool:
        """True if the transaction is open for longer than its timeout."""
        described = self.described
        return described is not None and self.open_s is not None and self.open_s * 1000 > described.timeout_ms


class ClusterView:
    """Asks the brokers as one user. Used on one event loop.

    :param settings: client settings under Kafka's names, with the user's credentials.
    :param admin: the client that asks; None for one with the settings.
    :ivar sizes_problem: the reason why the sizes of topics are unknown; empty if they are known.
    :ivar groups_problem: the reason why the list of groups is incomplete; empty if it is complete.
    """

    def __init__(self, settings: Mapping[str, str], clock: Clock, admin: AsyncAdmin | None = None) -> None:
        self.settings = dict(settings)
        self.admin = AsyncAdmin({"request.timeout.ms": REQUEST_MS, **self.settings}) if admin is None else admin
        self._clock = clock
        self._cluster = Cached(self.admin.describe_cluster, AGE_S_MAX, clock.monotonic)
        self._topics = Cached(self._fetch_topics, AGE_S_MAX, clock.monotonic)
        self._groups = Cached(self._fetch_groups, AGE_S_MAX, clock.monotonic)
        self._transactions = Cached(self._fetch_transactions, AGE_S_MAX, clock.monotonic)
        self._versions = Cached(self.admin.api_versions, VERSIONS_S, clock.monotonic)
        self._newest_versions: Mapping[str, range] = {}
        self._sizes = Cached(self._fetch_sizes, 10 * AGE_S_MAX, clock.monotonic)
        self._newest_sizes: Mapping[str, int] = {}
        self.sizes_problem = ""
        self.groups_problem = ""
        self.ends = History()
        self.lags = History()
        self.elections = Elections()
        self._ends: dict[TopicPartition, int] = {}
        self._begins_of: dict[TopicPartition, int] = {}
        self._begins: dict[str, int] = {}
        self._begins_at_s: float | None = None
        self._sampling: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connect, and begin to sample.

        :raises BarnabasError: no broker can be reached, or the credentials are wrong.
        """
        await self.within(self._cluster.get())
        await self.within(self._renew_versions())
        self._sampling = [
            asyncio.create_task(self._repeat(self.sample, "the offsets", 6 * CALL_S_MAX)),
            asyncio.create_task(self._repeat(self.watch, "the leaders", CALL_S_MAX)),
        ]

    async def close(self) -> None:
        """Stop sampling, and close the connections."""
        for task in self._sampling:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
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

    @property
    def has_transactions(self) -> bool:
        """True if the brokers advertise the APIs that list and describe transactions."""
        return {"ListTransactions", "DescribeTransactions"} <= self._newest_versions.keys()

    @property
    def has_share_groups(self) -> bool:
        """True if the brokers advertise the APIs that describe share groups."""
        return {"ShareGroupDescribe", "DescribeShareGroupOffsets"} <= self._newest_versions.keys()

    async def transactions(self) -> list[TransactionRow]:
        """Return the transactional ids that the user may describe, by name."""
        return await self.within(self._transactions.get())

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

    async def _fetch_groups(self) -> list[GroupListing]:
        """Return the groups of all brokers that answer, so that a broker that hangs hides only its own groups.

        :raises BarnabasError: no broker answered.
        """
        brokers = [node.id for node in (await self._cluster.get()).brokers]
        answers = await asyncio.gather(*map(self._groups_of, brokers))
        failures = [each for each in answers if not isinstance(each, list)]
        if failures and len(failures) == len(answers):
            raise failures[0]
        missing = [str(broker) for broker, each in zip(brokers, answers, strict=True) if not isinstance(each, list)]
        self.groups_problem = (
            f"The groups of broker {', '.join(missing)} are missing: {text_of(failures[0])}" if failures else ""
        )
        return sorted(
            (each for part in answers if isinstance(part, list) for each in part), key=lambda each: each.group
        )

    async def _groups_of(self, broker: int) -> list[GroupListing] | BarnabasError | TimeoutError:
        """Return the groups of one coordinator, or its error."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await self.admin.list_groups(broker=broker)
        except (BarnabasError, TimeoutError) as error:
            return error

    async def _fetch_transactions(self) -> list[TransactionRow]:
        found = await self.admin.list_transactions()
        wanted = sorted(found, key=lambda each: not each.is_open)[:DESCRIBED_TRANSACTIONS_MAX]
        described = await self.admin.describe_transactions([each.transactional_id for each in wanted])
        now_ms = self._clock.time_ms()

        def row(each: TransactionListing) -> TransactionRow:
            state = described.get(each.transactional_id)
            start_ms = None if state is None else state.start_ms
            return TransactionRow(each, state, None if start_ms is None else max(0, now_ms - start_ms) / 1000)

        return [row(each) for each in found]

    async def _fetch_sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        try:
            for folder in await self.admin.log_dirs():
                for where, size in folder.sizes.items():
                    sizes[where.topic] = sizes.get(where.topic, 0) + size
        except BarnabasError as error:
            self.sizes_problem = str(error)
        else:
            self.sizes_problem = ""
        return sizes

    # -- samples -------------------------------------------------------------------------------------------------

    async def _repeat(self, sample: Callable[[], Awaitable[None]], what: str, limit_s: float) -> None:
        while True:
            started_s = self._clock.monotonic()
            try:
                async with asyncio.timeout(limit_s):
                    await sample()
            except (BarnabasError, TimeoutError) as error:
                log.info("cannot sample %s: %s; trying again", what, text_of(error))
                await asyncio.sleep(SAMPLE_S)
                continue
            took_s = self._clock.monotonic() - started_s
            await asyncio.sleep(max(SAMPLE_S, took_s / SAMPLED_SHARE_MAX) - took_s)

    async def watch(self) -> None:
        """Read the leaders of all partitions, and the APIs that the brokers serve."""
        await self._renew_versions()
        topics = await self._topics.get()
        lacking = (
            name for name, topic in topics.items() if any(len(p.isr) < len(p.replicas) for p in topic.partitions)
        )
        eligible = await self._eligible(islice(lacking, ELIGIBLE_TOPICS_MAX))
        self.elections.note(self._clock.time_ms() / 1000, topics, eligible)

    async def _renew_versions(self) -> None:
        try:
            self._newest_versions = await self._versions.get()
        except BarnabasError as error:
            log.info("cannot read the APIs of the brokers: %s; the pages that depend on them do not change", error)

    async def _eligible(self, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, ...]]:
        names = list(topics)
        if not names or "DescribeTopicPartitions" not in self._newest_versions:
            return {}
        return await self.admin.eligible_leader_replicas(names)

    async def sample(self) -> None:
        """Read the sizes and the end offsets of all topics, and the lag of the groups."""
        topics = await self._topics.get(SAMPLE_S)  # `watch` has read them within this time
        self._newest_sizes = await self._sizes.get()
        is_led = {
            TopicPartition(name, each.partition): each.leader >= 0
            for name, topic in topics.items()
            for each in topic.partitions
        }
        led = [where for where, has_leader in is_led.items() if has_leader]
        # without a leader, a partition keeps its offsets, so that an outage does not change the rates
        ends = {where: end for where, end in self._ends.items() if not is_led.get(where, True)}
        ends |= await self.admin.end_offsets(led)
        self._ends = ends
        now_s = self._clock.time_ms() / 1000
        if self._begins_at_s is None or now_s - self._begins_at_s >= BEGINS_S or len(self._begins) != len(topics):
            begins = {where: begin for where, begin in self._begins_of.items() if not is_led.get(where, True)}
            self._begins_of = begins | await self.admin.beginning_offsets(led)
            self._begins = _by_topic(self._begins_of)
            self._begins_at_s = now_s
        self.ends.note(now_s, _by_topic(ends))
        groups = await self._groups.get()
        others = [each.group for each in groups if each.type != SHARE][:SAMPLED_GROUPS_MAX]
        committed = await self.admin.offsets_of_groups(others)
        lags: dict[str, float] = {group: _lag(offsets, ends) for group, offsets in committed.items()}
        if self.has_share_groups:
            for each in [each.group for each in groups if each.type == SHARE][:SAMPLED_SHARE_GROUPS_MAX]:
                lags |= await self._share_lag(each)
        self.lags.note(now_s, lags)

    async def _share_lag(self, group: str) -> dict[str, int]:
        """Return the lag of a share group by its name; nothing if it is not known."""
        try:
            offsets = await self.admin.share_group_offsets(group)
        except BarnabasError as error:
            log.debug("cannot read the lag of share group %s: %s; the pages leave it out", group, error)
            return {}
        lags = [each.lag for each in offsets.values() if each.lag is not None]
        return {group: sum(lags)} if lags else {}


def text_of(error: BarnabasError | TimeoutError) -> str:
    """Return the reason why the brokers did not answer."""
    return str(error) if isinstance(error, BarnabasError) else "The brokers did not answer in time"


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
