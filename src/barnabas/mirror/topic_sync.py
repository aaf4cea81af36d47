"""Creates topics in the target, adds partitions, and writes the mirror's claims on topics to the ledger.

A mirror never deletes topics: a topic that is deleted in the source stays in the target. A topic that is unavailable (a
partition without a leader, a missing response) does not delay the other topics.
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
"""The time limit in seconds for one topic in one round."""
STEPS_MAX = 6
"""The maximum number of steps per topic and round. The steps create the topic, write the claim, and check again."""
DOUBT_S = 1.0
"""The pause in seconds before the second check of a refused topic. The refusal is reported only after that check."""
FAILURES_MAX = 3
"""A round ends after this number of topics with retriable failures, because the cluster itself is probably
unavailable."""


@dataclass(frozen=True, slots=True)
class SyncedTopic:
    """A topic that is ready for mirroring, with its metadata in both clusters."""

    source: TopicView
    target: TopicView
    is_compacted: bool


SETTING_REFUSED = frozenset({ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION})
"""The error codes with which CreateTopics can reject a requested setting."""

OnTopic = Callable[[SyncedTopic], None]


class TopicSync:
    """Synchronizes all selected topics, in rounds.

    :param on_topic: called with each topic that is ready for mirroring.
    :param on_gone: called with the name of each topic that is not or no longer mirrored.
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
        """The topics that were refused once and wait for a second check."""
        self._reached = ""
        """The last topic of a round that ended early. The next round begins after this topic."""
        self.rounds = 0
        """The number of complete rounds."""

    def target_name(self, topic: str) -> str:
        """Return the target's name for a source topic."""
        return self._prefix + topic

    async def round(self) -> None:
        """Synchronize all selected topics once.

        :raises BarnabasError: a cluster does not respond, or some topics failed. In the latter case, it is the error of
        the first failed topic.
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
        """Check the refused topics a second time.

        A mirror in the opposite direction may have just created such a topic. It writes its claim a moment later, and
        the claim shows that the records come from the target.
        """
        await asyncio.sleep(DOUBT_S)
        await self._upstream.refresh()
        await self._ledger.refresh()
        await self._target.cluster.refresh()
        view = await self._source.cluster.refresh()
        await self._follow_all([view.topics[name] for name in sorted(self._doubted) if name in view.topics])
        self._doubted.clear()

    async def _follow_all(self, topics: list[TopicView]) -> None:
        """Synchronize the topics, beginning with the topics that the last round did not reach."""
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
                failures.append(TimedOutError(f"topic {topic.name!r} is not synchronized after {TOPIC_S:g} s"))
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
        """Create and claim the topic in the target as needed, until it is ready for mirroring.

        :raises MirrorError: the topic must not be mirrored.
        """
        has_claimed = False
        created: dict[str, str] = {}
        """The settings with which this call has created the target's topic."""
        for step in range(STEPS_MAX):
            if step:
                await self._target.cluster.describe([self.target_name(topic.name)])  # updates `cluster.view`
            standing = await self._standing(topic)
            decision = standing.decide()
            if isinstance(decision, Refused):
                if has_claimed:
                    # A mirror in the opposite direction claimed the topic at the same time, and both may withdraw their
                    # claims. Each mirror waits for a random number of rounds, so that they do not collide again.
                    await self._ledger.write({Claim.key(standing.target_topic): None})
                    self._waits[topic.name] = random.randrange(1, 5)
                raise CircleError(decision.reason) if decision.is_circle else MirrorError(decision.reason)
            if isinstance(decision, Create):
                self._leave(topic.name)  # batches in flight to a deleted topic must not reach the new topic
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
        raise MirrorError(f"topic {topic.name!r} changed during its synchronization; the next round retries")

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
        """Create the topic in the target; return the settings with which it was created.

        If the target rejects a setting, the mirror creates the topic without settings and sets them one by one later.
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
        """Add the partitions and settings of the source topic that the target topic does not have."""
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
                f"topic {name!r} has {len(view.partitions)} partitions in the target but {len(topic.partitions)} in the"
                " source; a mirror needs equal numbers"
            )
        return SyncedTopic(topic, view, is_compacted)
