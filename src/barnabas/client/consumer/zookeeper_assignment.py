"""The assignment of partitions without a coordinator: the paper's Algorithm 1 as a state machine without I/O.

Every consumer of a group reads the same registries (subscriptions and partition counts), sorts them, and takes its own
range of each topic. It claims a partition by creating an ephemeral node. If two consumers have read different
registries, their ranges may overlap. The second consumer to claim a partition finds the node, releases all its
partitions, and starts again. When all consumers have read the same registries, each partition has one owner.

The ranges are those of Kafka 0.8 and of the assignor `range`: if the partitions cannot be divided equally, the first
consumers get one more. So both kinds of coordination assign the same partitions.

`ZooKeeperGroupSession` executes the next step and reports its end; other events may arrive at any time. Sources: the
paper, 3.2, Algorithm 1; for the ranges Kafka 0.8, `ZookeeperConsumerConnector.rebalance`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from barnabas.errors import Failure
from barnabas.model import TopicPartition


@dataclass(frozen=True, slots=True)
class SubscriptionSnapshot:
    """The registries of a group at the time of a read.

    :param subscriptions: the topics of each consumer of the group, by consumer id.
    :param partition_counts: the number of partitions by topic, without topics that do not exist.
    """

    subscriptions: Mapping[str, Collection[str]]
    partition_counts: Mapping[str, int]


def range_assignment(consumer_id: str, registries: SubscriptionSnapshot) -> list[TopicPartition]:
    """Return the sorted partitions of a consumer according to the registries: one range of each topic.

    >>> two = {"ann": ["clicks"], "bob": ["clicks"]}
    >>> range_assignment("bob", SubscriptionSnapshot(two, {"clicks": 5}))
    [TopicPartition(topic='clicks', partition=3), TopicPartition(topic='clicks', partition=4)]
    """
    share: list[TopicPartition] = []
    for topic in sorted(registries.subscriptions.get(consumer_id, ())):
        consumers = sorted(each for each, topics in registries.subscriptions.items() if topic in topics)
        at, count = consumers.index(consumer_id), registries.partition_counts.get(topic, 0)
        each_has, first_have_more = divmod(count, len(consumers))
        start = at * each_has + min(at, first_have_more)
        stop = start + each_has + (at < first_have_more)
        share += (TopicPartition(topic, number) for number in range(start, stop))
    return share


class AssignmentStep(enum.Enum):
    """The next step of an assignment."""

    REGISTER = enum.auto()
    """Register the consumer with `ZooKeeperAssignment.topics` in the group, and call `on_registered`."""
    RELEASE = enum.auto()
    """Delete the consumer's owner nodes of `ZooKeeperAssignment.held`, and call `on_released`."""
    PAUSE = enum.auto()
    """Wait until another consumer may have released a refused partition, and call `on_paused`."""
    READ = enum.auto()
    """Call `on_reading`, read the registries, set watches, and call `on_read`."""
    CLAIM = enum.auto()
    """Call `on_claiming`, and create all owner nodes of `ZooKeeperAssignment.held` in one transaction.

    Then call `on_claimed` or `on_refused`.
    """


class ZooKeeperAssignment:
    """The partitions of one consumer, and its claims. Not thread-safe: callers must hold the consumer's guard.

    Invariant: `held` contains every partition for which this session may have an owner node, even while the outcome of
    a claim is unknown. So a release of `held` leaves no owner node behind.

    :param consumer_id: a name that is unique in the group.
    """

    is_cooperative = False
    """False: as in the paper, a consumer gives up all partitions before it claims others."""
    is_leader = False
    """False: no consumer assigns partitions to other consumers."""
    fenced: Failure | None = None
    """None: a consumer cannot fence another consumer."""

    def __init__(self, group: str, consumer_id: str) -> None:
        self.group = group
        self.consumer_id = consumer_id
        self.topics: frozenset[str] = frozenset()
        self.held: frozenset[TopicPartition] = frozenset()
        """The partitions that this consumer has claimed in its current session."""
        self.joining = False
        self.rejoin_needed = True
        self.lost = False
        """True if the session is lost or about to be lost, so other consumers may own the partitions."""
        self.reason = "first join"
        self.session = 0
        """The number of the current session. A step that belongs to an earlier session has no effect."""
        self._again = ""
        self._registered: frozenset[str] | None = None
        self._registries: SubscriptionSnapshot | None = None
        """The registries of the last read, or None if they have changed since then."""
        self._is_old = False
        """True if the registries have changed since the current read began."""
        self._must_pause = False
        self._owns = False
        """True if the partitions in `held` are claimed, and neither released nor lost."""
        self._heard_until_s = math.inf

    # --- requests of the application's side -----------------------------------------------------------

    def rejoin(self, reason: str) -> None:
        """Claim partitions again in the next poll, or after the current attempt."""
        if self.joining:
            self._again = reason
        elif not self.rejoin_needed:
            self.rejoin_needed = True
            self.reason = reason

    def on_lost_given_up(self) -> None:
        """Record that the application has given up its lost partitions."""
        self.lost = False

    @property
    def owns(self) -> bool:
        """Return whether this consumer owns the partitions in `held`, to its knowledge."""
        return self._owns

    @property
    def valid_until_s(self) -> float:
        """The monotonic time until which no other consumer can own the partitions.

        For a consumer without partitions, it is in the past. Every call that returns records compares this time with
        the clock, because the call may be the first code that runs after a suspension of the process.
        """
        return self._heard_until_s if self._owns else -math.inf

    def on_answered(self, until_s: float) -> None:
        """Record a response of the ZooKeeper servers, which keep the session at least until `until_s`."""
        self._heard_until_s = until_s

    def on_expired(self) -> None:
        """Treat the partitions as lost, because the time `valid_until_s` has passed."""
        if self._owns:
            self.on_session_lost("no response from ZooKeeper")

    # --- taking partitions ------------------------------------------------------------------------------

    def begin(self, topics: Collection[str]) -> None:
        """Start to claim partitions of these topics. The consumer has given up its former partitions."""
        self.topics = frozenset(topics)
        self.joining = True
        self._again = ""
        self._owns = False

    def next_step(self) -> AssignmentStep | None:
        """Return the next step of the rebalance, or None if this consumer already owns exactly the partitions in
        `held`."""
        if self._owns:
            return None
        if self.held:
            return AssignmentStep.RELEASE
        if self._must_pause:
            return AssignmentStep.PAUSE
        if self._registered != self.topics:
            return AssignmentStep.REGISTER
        if self._registries is None:
            return AssignmentStep.READ
        return AssignmentStep.CLAIM

    def on_registered(self) -> None:
        """Record that the consumer is registered in the group with `topics`. Registries that were read earlier are
        outdated.
        """
        self._registered = self.topics
        self._registries = None

    def on_released(self) -> None:
        """Record that the consumer has no owner nodes any more."""
        self.held = frozenset()

    def on_paused(self) -> None:
        """Record the end of the pause, in which other consumers had time to release partitions."""
        self._must_pause = False

    def on_reading(self) -> None:
        """Record that a read of the registries begins."""
        self._is_old = False

    def on_read(self, registries: SubscriptionSnapshot) -> None:
        """Apply the registries. If they assign other partitions to this consumer, it must start again."""
        if self._is_old:
            return  # a watch has fired during the read, so the registries may be outdated; a watch fires only once
        self._registries = registries
        if self._owns and range_assignment(self.consumer_id, registries) != sorted(self.held):
            self.rejoin("consumers or partitions have changed")

    def on_claiming(self) -> frozenset[TopicPartition]:
        """Record that a claim begins, and return the partitions to claim. The outcome is unknown
        until the claim ends.
        """
        assert self._registries is not None
        self.held = frozenset(range_assignment(self.consumer_id, self._registries))
        return self.held

    def on_refused(self) -> None:
        """Record that another consumer owns a partition, or that the outcome of the claim is unknown."""
        self._must_pause = True
        self._registries = None

    def on_claimed(self) -> list[TopicPartition]:
        """Record that this consumer owns all claimed partitions; return them, sorted."""
        self._owns = True
        self.joining = self.lost = False
        self.rejoin_needed = bool(self._again)
        self.reason, self._again = self._again, ""
        return sorted(self.held)

    def on_join_failed(self) -> None:
        """Record that the attempt has ended, with or without an error; the next poll starts again."""
        self.joining = False

    # --- what happens -----------------------------------------------------------------------------------

    @property
    def must_read(self) -> bool:
        """Return whether the registries have changed while this consumer owns its partitions."""
        return self._owns and self._registries is None

    def on_change(self) -> None:
        """Record that the registries have changed, because a watch has fired."""
        self._registries = None
        self._is_old = True

    def on_session_lost(self, reason: str) -> None:
        """Record the loss of the session: the owner nodes of this consumer are deleted, or will be deleted soon."""
        self.session += 1
        self._registered = self._registries = None
        self.held = frozenset()
        self._must_pause = False
        self._leave(reason)

    def on_left(self, reason: str) -> None:
        """Record that this consumer has left the group; the next poll starts again. Its owner nodes may still exist."""
        self._registered = self._registries = None
        self._leave(reason)

    def _leave(self, reason: str) -> None:
        self._owns = False
        self.lost = True
        if not self.joining:
            self.rejoin(reason)
