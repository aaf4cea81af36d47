"""A mirror copies topics of a source cluster to a target cluster until its caller stops it.

`Mirror` creates all parts of the mirror and runs their tasks. All methods run on one event loop unless their docstrings
say otherwise. docs/how-to/mirror.md lists the guarantees.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from barnabas.client.audit.event_sender import AUDIT_TOPIC
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BarnabasError, ConfigurationError
from barnabas.metrics.metric import Sample
from barnabas.mirror.audit_account import PartitionAuditAccount, TopicAuditAccount
from barnabas.mirror.audit_reporting import AuditReporter
from barnabas.mirror.errors import MirrorError
from barnabas.mirror.events import EventReporter, EventSink
from barnabas.mirror.group_offset_sync import GroupOffsetSync
from barnabas.mirror.ledger import PartitionMark
from barnabas.mirror.ledger_topic import LedgerTopic
from barnabas.mirror.metrics import Sums, collect
from barnabas.mirror.mirrored_cluster import MirroredCluster
from barnabas.mirror.name_filter import NameFilter
from barnabas.mirror.partition_copy import PartitionCopy
from barnabas.mirror.partition_link import PartitionLink, waiting_reason
from barnabas.mirror.resume_positions import ResumePositions
from barnabas.mirror.source_fetcher import FETCH_PURPOSE, SourceFetcher
from barnabas.mirror.target_producer import PRODUCE_PURPOSE, TargetProducer
from barnabas.mirror.topic_config_rules import SettingsFilter
from barnabas.mirror.topic_config_sync import TopicConfigSync
from barnabas.mirror.topic_sync import SyncedTopic, TopicSync
from barnabas.model import TopicPartition
from barnabas.records.mirror_identity import lineage_of

AGAIN_S = 1.0
"""The pause in seconds before the mirror retries a round after a cluster error."""
STOP_S = 10.0
"""The maximum time in seconds that `Mirror.stop` waits for outstanding responses and for the last ledger writes."""
AUDIT_PATIENCE_S = 60.0
"""The maximum time in seconds that a failing audit blocks the mirror. Afterwards, the mirror continues without counting
records."""
LOOK_S = 1.0
"""The interval in seconds between two checks of the leaders and leader epochs of all partitions."""
STOPPED_AGAIN_S = 30.0
"""The pause in seconds before the mirror retries a stopped partition."""

APPLICATION = "barnabas mirror"
"""The application name in the audit events of a mirror."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MirrorConfig:
    """The settings of a mirror.

    :param source, target: client settings of the two clusters, under Kafka's names; `bootstrap.servers` is required.
    :param topics, groups: regular expressions that match whole names.
    :param prefix: the prefix of the topic names in the target.
    :param replication_factor: replication factor of topics that the mirror creates; None means the default of the
    target's brokers.
    :param refresh_s: interval in seconds between two synchronizations of topics.
    :param groups_s: interval in seconds between two synchronizations of group offsets.
    :param ledger_s: interval in seconds between two writes to the ledger and between two audit reports.
    :param settings: selects the topic settings that the mirror copies.
    :param audit: True if the mirror reports its record counts to the target's `_audit` topic; None means only if the
    source cluster has that topic.
    """

    source: Mapping[str, str] = field(repr=False)
    target: Mapping[str, str] = field(repr=False)
    topics: tuple[str, ...]
    groups: tuple[str, ...] = ()
    prefix: str = ""
    replication_factor: int | None = None
    refresh_s: float = 5.0
    groups_s: float = 5.0
    ledger_s: float = 5.0
    audit: bool | None = None
    settings: SettingsFilter = field(default_factory=SettingsFilter)
    choice: NameFilter = field(init=False)
    group_choice: NameFilter = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "choice", NameFilter(self.topics))
        object.__setattr__(self, "group_choice", NameFilter(self.groups))


class Mirror:
    """Mirrors the configured topics, partitions and groups. The constructor binds the mirror to the running event loop.

    :param sink: receives each event of the mirror.
    """

    def __init__(self, config: MirrorConfig, sink: EventSink) -> None:
        self._config = config
        self._events = EventReporter(sink)
        self.links: dict[TopicPartition, PartitionLink] = {}
        self._source = MirroredCluster("source", config.source, FETCH_PURPOSE)
        self._target = MirroredCluster("target", config.target, PRODUCE_PURPOSE)
        self._upstream = LedgerTopic(self._source, writes=False)
        self._ledger = LedgerTopic(self._target, writes=True)
        self._reading = SourceFetcher(
            self._source.cluster, self.links, SYSTEM_CLOCK, self._on_ready, self._stop_link, self._on_well
        )
        self._writing = TargetProducer(
            self._target.cluster, self.links, SYSTEM_CLOCK, self._on_room, self._stop_link, self._on_well
        )
        self._audit_reporter = AuditReporter(self._target)
        self._accounts: dict[tuple[bytes, str], TopicAuditAccount] = {}
        """The audit accounts by source topic id and target topic id in hex."""
        self._resume_positions = ResumePositions(
            self._source, self._target, self._ledger, SYSTEM_CLOCK, self._events, self._stop_link
        )
        self._settings = TopicConfigSync(
            self._source, self._target, self._ledger, config.settings, SYSTEM_CLOCK, self._events
        )
        self._topics = TopicSync(
            self._source,
            self._target,
            self._upstream,
            self._ledger,
            config.choice,
            config.prefix,
            config.replication_factor,
            self._settings,
            self._events,
            self._on_topic,
            self._on_gone,
        )
        self._groups = GroupOffsetSync(
            self._source, self._target, self._ledger, config.group_choice, self.links, self._events
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._answered = asyncio.Event()
        self._reported_at_s = SYSTEM_CLOCK.monotonic()
        """The monotonic time in seconds of the last successful audit report."""
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.final = self.sums
        """The totals at the end of `stop`, before it removes the partitions."""

    # --- start and stop ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to both clusters, retrying while one is unavailable, and start all tasks.

        :raises ConfigurationError: source and target are the same cluster.
        """
        await self._wait_for(self._source.start, "source")
        await self._wait_for(self._target.start, "target")
        if self._source.id == self._target.id:
            raise ConfigurationError(f"source and target are the same cluster ({self._source.id})")
        await self._wait_for(self._ledger.create, "ledger")
        config = self._config
        rounds = [
            (self._topics.round, config.refresh_s, "topics"),
            (self._report_audit, config.ledger_s, "audit"),
            (self._write_ledger, config.ledger_s, "ledger"),
            (self._check_partitions, LOOK_S, "partitions"),
            (self._check_resting, config.refresh_s, "resting partitions"),
            *([(self._groups.round, config.groups_s, "groups")] if config.groups else []),
        ]
        self._tasks = [asyncio.create_task(self._again(*each)) for each in rounds]
        self._tasks += [asyncio.create_task(self._reading.run()), asyncio.create_task(self._writing.run())]

    async def _wait_for(self, step: Callable[[], Awaitable[None]], about: str) -> None:
        """Run a startup step, and retry it after each retriable error until it succeeds."""
        while True:
            try:
                await step()
            except BarnabasError as error:
                if not error.retriable:
                    raise
                self._events.problem(about, "waiting", str(error))
                await asyncio.sleep(AGAIN_S)
            else:
                self._events.recovered(about)
                return

    async def run_until(self, stop: asyncio.Event) -> None:
        """Mirror until `stop` is set. An unexpected exception in any task ends the whole mirror.

        :raises Exception: a task of the mirror failed unexpectedly.
        """
        waiting = asyncio.create_task(stop.wait())
        try:
            ends: list[asyncio.Future[Any]] = [waiting, self._broken, *self._tasks]
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            waiting.cancel()

    async def stop(self) -> None:
        """Wait for outstanding responses, write the ledger, and close all connections, within `STOP_S` if possible."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        due_s = asyncio.get_running_loop().time() + STOP_S
        for step, name in (
            (self._all_answered, "partitions"),
            (self._write_ledger, "ledger"),
            (self._report_audit, "audit"),
            (self._write_ledger, "ledger"),
        ):
            await self._last(step, name, due_s)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due_s):
                await self._ask_for_lag()
        self.final = self.sums
        for topic in {tp.topic for tp in self.links}:
            self._on_gone(topic)
        for part in (self._audit_reporter, self._upstream, self._ledger, self._source, self._target):
            await part.stop()

    async def _last(self, step: Callable[[], Awaitable[None]], name: str, due_s: float) -> None:
        """Run one shutdown step. A failure is only reported, because the next mirror repeats the work."""
        try:
            async with asyncio.timeout_at(due_s):
                await step()
        except BarnabasError as error:
            self._events.problem(name, "left undone", str(error))
        except TimeoutError:
            self._events.problem(name, "left undone", f"not done within {STOP_S:g} s")
        else:
            self._events.recovered(name)

    async def _all_answered(self) -> None:
        """Wait until the target has responded to all batches in flight.

        :raises MirrorError: some partitions cannot make progress.
        """
        while any(link.copy.is_waiting for link in self.links.values()):
            self._answered.clear()
            await self._answered.wait()
        self._check_none_waits()

    async def _again(self, one_round: Callable[[], Awaitable[None]], interval_s: float, name: str) -> None:
        while True:
            try:
                await one_round()
            except BarnabasError as error:
                self._events.problem(name, "waiting", str(error))
                await asyncio.sleep(min(interval_s, AGAIN_S))
            else:
                self._events.recovered(name)
                await asyncio.sleep(interval_s)

    # --- partitions -------------------------------------------------------------------------------------

    def _on_topic(self, topic: SyncedTopic) -> None:
        for each in topic.source.partitions:
            source = TopicPartition(topic.source.name, each.partition)
            target = TopicPartition(topic.target.name, each.partition)
            source_id, target_id = topic.source.topic_id, topic.target.topic_id
            link = self.links.get(source)
            if link is not None and (link.source_topic_id, link.target_topic_id) != (source_id, target_id):
                self._end_link(source)  # the source or target topic was deleted and recreated: start from the beginning
                link = None
            if link is None:
                lineage = lineage_of(self._source.id, source_id)
                link = PartitionLink(source, target, target_id, PartitionCopy(source, lineage), source_id)
                link.copy.may_have_holes = topic.is_compacted
                link.copy.account = self._account_of(topic, each.partition)
                link.task = asyncio.create_task(self._resume_positions.watch_link(link))
                link.task.add_done_callback(self._on_link_ended)
                link.attention.set()
                self.links[source] = link
                continue
            link.copy.may_have_holes = topic.is_compacted
            if link.copy.account is None and (account := self._account_of(topic, each.partition)) is not None:
                link.copy.account = account
                link.recheck()  # the account learns the first offset to count when the mirror has read the target's log
            if link.stopped is not None and SYSTEM_CLOCK.monotonic() - link.stopped_at_s >= STOPPED_AGAIN_S:
                link.try_again()

    def _account_of(self, topic: SyncedTopic, partition: int) -> PartitionAuditAccount | None:
        """Return the audit account of a partition. Return None without an audit, or for a compacted topic, because
        compaction deletes records."""
        audits = self._config.audit
        if audits is None:
            audits = AUDIT_TOPIC in self._source.cluster.view.topics
        if not audits or topic.is_compacted:
            return None
        source, target = topic.source, topic.target
        place = (source.topic_id, target.topic_id.hex())
        if place not in self._accounts:
            lineage = lineage_of(self._source.id, source.topic_id)
            self._accounts[place] = TopicAuditAccount(
                target.name, target.topic_id.hex(), source.name, source.topic_id.hex(), lineage, APPLICATION
            )
        return PartitionAuditAccount(self._accounts[place], partition)

    def _on_gone(self, topic: str) -> None:
        for tp in [tp for tp in self.links if tp.topic == topic]:
            self._end_link(tp)

    def _end_link(self, source: TopicPartition) -> None:
        link = self.links.pop(source)
        link.copy.forget()
        self._events.forget(str(source))
        if link.task is not None:
            link.task.cancel()

    def _on_link_ended(self, task: asyncio.Task[None]) -> None:
        # Without this task, mirroring of the partition would stop silently. So end the whole mirror with the error.
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._broken.done():
            self._broken.set_exception(error)

    def _stop_link(self, link: PartitionLink, error: MirrorError) -> None:
        link.stop_with(str(error), SYSTEM_CLOCK.monotonic())
        self._events.problem(str(link.source), "stopped", str(error))

    def _on_well(self, link: PartitionLink) -> None:
        self._events.recovered(str(link.source))

    async def _check_partitions(self) -> None:
        now_s = SYSTEM_CLOCK.monotonic()
        for link in self.links.values():
            if self._source.cluster.view.leader(link.source) is None:
                link.refuse("no leader", now_s)
                self._source.cluster.request_refresh()  # without a leader, no failed fetch requests it
            if self._target.cluster.view.leader(link.target) is None:
                link.note_failure("target: no leader")
                self._target.cluster.request_refresh()
            terms = self._source.term(link.source), self._target.term(link.target)
            if link.is_idle and terms != (link.source_term, link.target_term):
                link.recheck()  # a new leader may have truncated the log; without traffic, only this check detects it
        self._check_none_waits()

    async def _ask_for_lag(self) -> None:
        """Request the log end offsets of stopped partitions from the source, because no fetch reports them."""
        stopped = {link.source: link for link in self.links.values() if link.stopped is not None}
        if stopped:
            for tp, end in (await self._source.log_ends(stopped)).items():
                stopped[tp].note_source_end(end, SYSTEM_CLOCK.monotonic())

    async def _check_resting(self) -> None:
        await self._ask_for_lag()
        await self._resume_positions.check_idle(list(self.links.values()))

    def _check_none_waits(self) -> None:
        if (reason := waiting_reason(self.links.values())) is not None:
            raise MirrorError(reason)

    def _on_ready(self) -> None:
        self._writing.wake()

    def _on_room(self) -> None:
        self._answered.set()
        self._reading.wake()
        self._writing.wake()

    # --- ledger, audit and metrics -----------------------------------------------------------------------------

    async def _report_audit(self) -> None:
        counted = {link: account for link in self.links.values() if (account := link.copy.account) is not None}
        topics = {account.topic for account in counted.values()}
        try:
            await self._audit_reporter.report(counted.values())
        except BarnabasError:
            if SYSTEM_CLOCK.monotonic() - self._reported_at_s >= AUDIT_PATIENCE_S:
                for topic in topics:
                    topic.is_put_off = topic.is_put_off or topic.is_full
                self._on_room()
            raise
        self._reported_at_s = SYSTEM_CLOCK.monotonic()
        for link, account in counted.items():
            offsets = link.copy.offsets
            if account.topic.is_put_off and offsets is not None and account.counted_to != offsets.source_end:
                link.recheck()  # read the uncounted records again, only to count them
        for topic in topics:
            topic.is_put_off = False

    async def _write_ledger(self) -> None:
        marks = {link: mark for link in self.links.values() if (mark := link.mark) is not None and mark != link.written}
        await self._ledger.write({PartitionMark.key(*link.target): mark.value() for link, mark in marks.items()})
        for link, mark in marks.items():
            link.written = mark

    @property
    def sums(self) -> Sums:
        """The totals over all partitions: records mirrored, and the lag."""
        found = Sums.of(self.links.values())
        return found if self._topics.rounds else replace(found, lag=None)

    @property
    def current_problems(self) -> Mapping[str, str]:
        """The reason for each current problem, by the partition, topic or task with the problem."""
        return self._events.current_problems

    @property
    def refused_settings(self) -> list[str]:
        """The settings that the target rejects, each as `topic setting`."""
        return self._settings.refused

    @property
    def has_caught_up(self) -> bool:
        """True if the target has all records up to the source's last known log end offsets, except in stopped
        partitions."""
        return self._topics.rounds > 0 and all(link.stopped or link.lag == 0 for link in self.links.values())

    async def follow_groups(self) -> bool:
        """Synchronize group offsets immediately, without waiting for the interval. Return whether both clusters
        responded."""
        if not self._config.groups:
            return True
        try:
            await self._groups.round()
        except BarnabasError as error:
            self._events.problem("groups", "waiting", str(error))
            return False
        return True

    def not_ready(self) -> list[str]:
        """Return the reasons why the target may fall behind the source. Thread-safe."""
        if not self._topics.rounds:
            return ["the mirror is starting", *_plain(self.current_problems)]
        return _plain(self.current_problems)

    def collect(self) -> Iterator[Sample]:
        """Yield the metrics of the mirror. Thread-safe."""
        links, now_s = list(self.links.values()), SYSTEM_CLOCK.monotonic()
        return collect(links, self._groups.commits, self._audit_reporter.event_count, now_s)


def _plain(problems: Mapping[str, str]) -> list[str]:
    return [f"{about}: {reason}" for about, reason in sorted(problems.items())]
