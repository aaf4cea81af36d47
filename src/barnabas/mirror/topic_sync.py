"""Creates the target's topics, adds partitions, and writes the claims on them.

Topics that are deleted in the source stay in the target, as they are: a mirror adds, and takes nothing away. A topic
that cannot be looked at now (a partition without a leader, an answer that does not come) does not keep others waiting.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from barnabas.client.admin.topic_changes import add_partitions, create_topic
from barnabas.client.cluster import TopicView
from barnabas.errors import ApiError, BarnabasError, DisconnectedError, ErrorCode, TimedOutError
from barnabas.mirror.errors import CircleError, MirrorError
from barnabas.mirror.events import EventReporter
from barnabas.mirror.ledger import Claim, TopicSettings
from barnabas.mirror.ledger_topic import LedgerTopic
from barnabas.mirror.mirrored_cluster import MirroredCluster
from barnabas.mirror.name_filter import NameFilter
from barnabas.mirror.topic_claims import ClaimCheck, Create, Proceed, Refused, WriteClaim
from barnabas.mirror.topic_config_sync import TopicConfigSync
from barnabas.model import TopicPartition

TIMEOUT_MS = 30_000
TOPIC_S = 60.0
"""For one topic in one round."""
STEPS_MAX = 6
"""To be made, claimed, and looked at once more."""
DOUBT_S = 1.0
"""So long after it was refused a topic is looked at again, and then told."""
FAILURES_MAX = 3
"""A round ends when so many topics have failed that may succeed later: it is the cluster, then."""


@dataclass(frozen=True, slots=True)
class SyncedTopic:
    """A topic that is mirrored: its views, before which nothing is to be asked any more."""

    source: TopicView
    target: TopicView
    is_compacted: bool


SETTING_REFUSED = frozenset({ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION})
"""Answers to a topic that may be due to one of its settings."""

OnTopic = Callable[[SyncedTopic], None]


class TopicSync:
    """Looks at all chosen topics, round by round.

    :param on_topic: called with each topic that may be mirrored, and has all its partitions.
    :param on_gone: called with the name of a topic that may not be mirrored (any more).
    """

    def __init__(
        self,
        source: MirroredCluster,
        target: MirroredCluster,
        upstream: LedgerTopic,
        ledger: LedgerTopic,
        choice: NameFilter,
        prefix: str,
        replication_factor: int | None,
        settings: TopicConfigSync,
        events: EventReporter,
        on_topic: OnTopic,
        on_gone: Callable[[str], None],
    ) -> None:
        self._source, self._target = source, target
        self._upstream, self._ledger = upstream, ledger
        self._choice = choice
        self._prefix = prefix
        self._replication_factor = replication_factor
        self._settings = settings
        self._events = events
        self._on_topic, self._on_gone = on_topic, on_gone
        self._mirrored: set[str] = set()
        self._waits: dict[str, int] = {}
        self._doubted: set[str] = set()
        """Refused, and not told yet."""
        self._reached = ""
        """The topic behind which the next round begins."""
        self.rounds = 0
        """How often all topics were looked at."""

    def target_name(self, topic: str) -> str:
        """Return what a topic is called in the target."""
        return self._prefix + topic

    async def round(self) -> None:
        """Look at all topics once.

        :raises BarnabasError: one of the clusters does not answer; the first of the topics that could not be looked at.
        """
        await self._upstream.refresh()
        await self._ledger.refresh()
        await self._target.cluster.refresh()
        source_view = await self._source.cluster.refresh()
        names = self._choice.topics(name for name, topic in source_view.topics.items() if not topic.is_internal)
        for name in self._mirrored.difference(names):
            self._events.report(name, "deleted in the source", kept_in_the_target=self.target_name(name))
            self._leave(name)
        await self._follow_all([source_view.topics[name] for name in names if source_view.topics[name].partitions])
        if self._doubted:
            await self._look_twice()
        self.rounds += 1

    async def _look_twice(self) -> None:
        """Look again at topics that were refused.

        A mirror in the opposite direction may have made one of them just now. Its claim comes a moment later, and says
        that the records came from the target.
        """
        await asyncio.sleep(DOUBT_S)
        await self._upstream.refresh()
        await self._ledger.refresh()
        await self._target.cluster.refresh()
        view = await self._source.cluster.refresh()
        await self._follow_all([view.topics[name] for name in sorted(self._doubted) if name in view.topics])
        self._doubted.clear()

    async def _follow_all(self, topics: list[TopicView]) -> None:
        """Look at topics, those first that the last round did not come to."""
        failures: list[BarnabasError] = []
        for topic in sorted(topics, key=lambda each: (each.name <= self._reached, each.name)):
            try:
                async with asyncio.timeout(TOPIC_S):
                    await self._follow(topic)
            except DisconnectedError:
                raise
            except BarnabasError as error:
                failures.append(error)
            except TimeoutError:
                failures.append(TimedOutError(f"topic {topic.name!r}: not settled in {TOPIC_S:g} s"))
            if len(failures) == FAILURES_MAX:
                self._reached = topic.name
                raise failures[0]
        self._reached = ""
        if failures:
            raise failures[0]

    def _leave(self, name: str) -> None:
        self._mirrored.discard(name)
        self._settings.forget(name)
        self._on_gone(name)

    async def _follow(self, topic: TopicView) -> None:
        if self._waits.get(topic.name, 0) > 0:
            self._waits[topic.name] -= 1
            return
        try:
            found = await self._settled(topic)
        except CircleError as error:
            self._events.forget(topic.name)
            self._events.skipped(topic.name, str(error))
            self._leave(topic.name)
            return
        except (MirrorError, ApiError) as error:
            if error.retriable:
                raise
            self._leave(topic.name)
            if topic.name in self._doubted or topic.name in self._events.current_problems:
                self._events.problem(topic.name, "not mirrored", str(error))
            else:
                self._doubted.add(topic.name)
            return
        self._events.recovered(topic.name)
        if topic.name not in self._mirrored:
            self._mirrored.add(topic.name)
            self._events.report(topic.name, "mirrored", partitions=len(topic.partitions), to=found.target.name)
        self._on_topic(found)

    async def _settled(self, topic: TopicView) -> SyncedTopic:
        """Do what is to be done until the topic may be mirrored.

        :raises MirrorError: it may not.
        """
        has_claimed = False
        created: dict[str, str] = {}
        """What the target's topic was created with, where this mirror did so just now."""
        for step in range(STEPS_MAX):
            if step:
                await self._target.cluster.describe([self.target_name(topic.name)])  # `view` has it then
            standing = await self._standing(topic)
            decision = standing.decide()
            if isinstance(decision, Refused):
                if has_claimed:
                    # A mirror in the opposite direction began just now. Both may take their claims back; so that they
                    # do not meet again, each waits for as many rounds as it draws.
                    await self._ledger.write({Claim.key(standing.target_topic): None})
                    self._waits[topic.name] = random.randrange(1, 5)
                raise CircleError(decision.reason) if decision.is_circle else MirrorError(decision.reason)
            if isinstance(decision, Create):
                self._leave(topic.name)  # what is under way to the topic before this one must not come into it
                created = await self._create(topic)
            elif isinstance(decision, WriteClaim):
                settings = TopicSettings.of(
                    decision.claim.target_topic_id, {name: [value] for name, value in created.items()}
                )
                await self._ledger.write(
                    {
                        Claim.key(standing.target_topic): decision.claim.value(),
                        TopicSettings.key(standing.target_topic): settings.value(),
                    }
                )
                await self._upstream.refresh()
                has_claimed = True
            elif isinstance(decision, Proceed):
                return await self._grown(topic)
        raise MirrorError(f"topic {topic.name!r} changes while it is looked at; it is tried again")

    async def _standing(self, topic: TopicView) -> ClaimCheck:
        name = self.target_name(topic.name)
        view = self._target.cluster.view.topics.get(name)
        there = view is not None and bool(view.partitions)
        claim = self._ledger.find(Claim, Claim.key(name))
        is_claimed = view is not None and claim is not None and claim.target_topic_id == view.topic_id.hex()
        return ClaimCheck(
            topic=topic.name,
            source_cluster=self._source.id,
            target_cluster=self._target.id,
            source_topic_id=topic.topic_id.hex(),
            target_topic=name,
            target_topic_id=view.topic_id.hex() if there and view is not None else None,
            target_is_empty=not there or is_claimed or view is None or await self._is_empty(view),
            claim=claim,
            upstream=self._upstream.find(Claim, Claim.key(topic.name)),
        )

    async def _is_empty(self, view: TopicView) -> bool:
        for each in view.partitions:
            start, end = await self._target.ends(TopicPartition(view.name, each.partition))
            if start != end:
                return False
        return True

    async def _create(self, topic: TopicView) -> dict[str, str]:
        """Create the topic in the target; return the settings that it was created with.

        A target that refuses a setting has the topic created without settings: those that it takes follow one by one.
        """
        name = self.target_name(topic.name)
        settings = await self._settings.at_creation(topic.name)
        try:
            try:
                await self._create_with(name, len(topic.partitions), settings)
            except ApiError as error:
                if not settings or error.code not in SETTING_REFUSED:
                    raise
                settings = {}
                await self._create_with(name, len(topic.partitions), settings)
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            settings = {}
        await self._target.cluster.topic(name, timeout_s=TIMEOUT_MS / 1000)
        return settings

    async def _create_with(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        await create_topic(
            self._target.cluster,
            name,
            partitions=partitions,
            replication_factor=self._replication_factor,
            config=settings,
            timeout_ms=TIMEOUT_MS,
        )

    async def _grown(self, topic: TopicView) -> SyncedTopic:
        """Give the target's topic as many partitions as the source's has, and the same settings."""
        cluster = self._target.cluster
        name = self.target_name(topic.name)
        view = cluster.view.topics[name]
        is_compacted = await self._settings.follow(topic.name, name, view.topic_id.hex())
        if len(view.partitions) < len(topic.partitions):
            await add_partitions(cluster, name, len(topic.partitions), timeout_ms=TIMEOUT_MS)
            self._events.report(topic.name, "enlarged", partitions=len(topic.partitions))
            view = (await cluster.refresh()).topics[name]
        elif len(view.partitions) > len(topic.partitions):
            raise MirrorError(
                f"topic {name!r} has {len(view.partitions)} partitions in the target, and {len(topic.partitions)} in"
                " the source; a mirror needs the same"
            )
        return SyncedTopic(topic, view, is_compacted)
