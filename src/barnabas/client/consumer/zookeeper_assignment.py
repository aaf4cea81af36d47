"""The assignment of partitions without a coordinator: the paper's Algorithm 1 as a state machine without I/O.

Every consumer of a group reads the same registries (subscriptions and numbers of partitions), sorts them, and takes its
own range of each topic. It claims a partition with a node that exists once and ends with its session. The ranges of two
consumers with different reads may overlap. Then the second claim finds the node, releases everything, and begins again.
When all have read the same, each partition has one owner.

The ranges are those of Kafka 0.8 and of the assignor `range`: the first consumers get one more where the partitions
cannot be divided evenly. So both ways of coordination assign the same partitions.

`ZooKeeperGroupSession` takes the next step, and reports its end; other events may come at any time. Facts: the paper,
3.2, Algorithm 1; for the ranges Kafka 0.8, `ZookeeperConsumerConnector.rebalance`.
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
    """The registries of a group, as a consumer has read them.

    :param subscriptions: the topics of each consumer of the group, by its id.
    :param partition_counts: the numbers of partitions; topics that do not exist are missing.
    """

    subscriptions: Mapping[str, Collection[str]]
    partition_counts: Mapping[str, int]


def range_assignment(consumer_id: str, registries: SubscriptionSnapshot) -> list[TopicPartition]:
    """Return the partitions of a consumer once all have read these registries, sorted; of each topic a range.

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
    """The next step on the way to partitions."""

    REGISTER = enum.auto()
    """Register the consumer with `ZooKeeperAssignment.topics` in the group; then `on_registered`."""
    RELEASE = enum.auto()
    """Delete the consumer's owner nodes of `ZooKeeperAssignment.held`; then `on_released`."""
    PAUSE = enum.auto()
    """Wait until another consumer may have released a refused partition; then `on_paused`."""
    READ = enum.auto()
    """After `on_reading`, read the registries and set watches; then `on_read`."""
    CLAIM = enum.auto()
    """After `on_claiming`, create nodes for all of `ZooKeeperAssignment.held`, or for none.

    Then `on_claimed` or `on_refused`.
    """


class ZooKeeperAssignment:
    """The partitions that one consumer owns, and how it claims them. Not thread-safe: the consumer guards it.

    Invariant: `held` has every owner node that the consumer's session may have in the tree, also while the outcome of a
    claim is unknown. So to release `held` is to release everything.

    :param consumer_id: a name that no other consumer of the group has.
    """

    is_cooperative = False
    """A consumer gives up all partitions before it claims others, as in the paper."""
    is_leader = False
    """No consumer assigns partitions to others, so none has to watch their topics."""
    fenced: Failure | None = None
    """No consumer can take the place of another."""

    def __init__(self, group: str, consumer_id: str) -> None:
        self.group = group
        self.consumer_id = consumer_id
        self.topics: frozenset[str] = frozenset()
        """The topics of this consumer."""
        self.held: frozenset[TopicPartition] = frozenset()
        """The partitions that this consumer has claimed in its current session."""
        self.joining = False
        self.rejoin_needed = True
        self.lost = False
        """The session is lost or about to be: other consumers may own the application's partitions already."""
        self.reason = "first join"
        self.session = 0
        """Counts sessions: the end of a step of an earlier session has no meaning."""
        self._again = ""
        self._registered: frozenset[str] | None = None
        self._registries: SubscriptionSnapshot | None = None
        """The last registries; None: they have changed since."""
        self._is_old = False
        """True if the registries have changed since the current read began."""
        self._must_pause = False
        self._owns = False
        """True if `held` is claimed, and neither released nor lost."""
        self._heard_until_s = math.inf

    # --- what the application's side asks for -----------------------------------------------------------

    def rejoin(self, reason: str) -> None:
        """Take partitions again with the next poll, or after the current attempt."""
        if self.joining:
            self._again = reason
        elif not self.rejoin_needed:
            self.rejoin_needed = True
            self.reason = reason

    def on_lost_given_up(self) -> None:
        """The application has given up its lost partitions."""
        self.lost = False

    @property
    def owns(self) -> bool:
        """Return whether this consumer owns the partitions in `held`, as far as it knows."""
        return self._owns

    @property
    def valid_until_s(self) -> float:
        """The monotonic time until which no other consumer can own the partitions; in the past for a consumer without
        any.

        Every call that returns records checks the clock itself: in a suspended process nothing else has run yet.
        """
        return self._heard_until_s if self._owns else -math.inf

    def on_answered(self, until_s: float) -> None:
        """The servers have responded. They end the session not before `until_s`, even without further pings."""
        self._heard_until_s = until_s

    def on_expired(self) -> None:
        """`valid_until_s` has passed: the partitions are lost."""
        if self._owns:
            self.on_session_lost("no word from the tree")

    # --- taking partitions ------------------------------------------------------------------------------

    def begin(self, topics: Collection[str]) -> None:
        """Begin to take partitions of these topics. The consumer has given up its former partitions."""
        self.topics = frozenset(topics)
        self.joining = True
        self._again = ""
        self._owns = False

    def next_step(self) -> AssignmentStep | None:
        """Return the next step; None: this consumer owns `held`."""
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
        """The group has this consumer with `topics`; earlier registries are outdated."""
        self._registered = self.topics
        self._registries = None

    def on_released(self) -> None:
        """The consumer has no owner nodes any more."""
        self.held = frozenset()

    def on_paused(self) -> None:
        """Other consumers have had time to release partitions."""
        self._must_pause = False

    def on_reading(self) -> None:
        """A read of the registries begins."""
        self._is_old = False

    def on_read(self, registries: SubscriptionSnapshot) -> None:
        """Apply the registries. If they give this consumer other partitions than it has, it must begin again."""
        if self._is_old:
            return  # the read may be older than the watch that has fired, which fires once
        self._registries = registries
        if self._owns and range_assignment(self.consumer_id, registries) != sorted(self.held):
            self.rejoin("consumers or partitions have come or gone")

    def on_claiming(self) -> frozenset[TopicPartition]:
        """A claim begins; from now on it may have succeeded. Return the partitions."""
        assert self._registries is not None
        self.held = frozenset(range_assignment(self.consumer_id, self._registries))
        return self.held

    def on_refused(self) -> None:
        """A partition belongs to another consumer, or the outcome of the claim is unknown."""
        self._must_pause = True
        self._registries = None

    def on_claimed(self) -> list[TopicPartition]:
        """This consumer owns all claimed partitions; return them, sorted."""
        self._owns = True
        self.joining = self.lost = False
        self.rejoin_needed = bool(self._again)
        self.reason, self._again = self._again, ""
        return sorted(self.held)

    def on_join_failed(self) -> None:
        """The attempt has ended, with or without an error; the next poll begins again."""
        self.joining = False

    # --- what happens -----------------------------------------------------------------------------------

    @property
    def must_read(self) -> bool:
        """Return whether the registries have changed, though this consumer has its partitions."""
        return self._owns and self._registries is None

    def on_change(self) -> None:
        """A watch has fired: the registries have changed."""
        self._registries = None
        self._is_old = True

    def on_session_lost(self, reason: str) -> None:
        """This consumer owns nothing in the tree any more, or will not before long."""
        self.session += 1
        self._registered = self._registries = None
        self.held = frozenset()
        self._must_pause = False
        self._leave(reason)

    def on_left(self, reason: str) -> None:
        """This consumer has left the group, and begins again with the next poll. Its owner nodes may still be there."""
        self._registered = self._registries = None
        self._leave(reason)

    def _leave(self, reason: str) -> None:
        self._owns = False
        self.lost = True
        if not self.joining:
            self.rejoin(reason)
