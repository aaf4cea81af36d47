"""Which partitions a consumer takes where consumers coordinate among themselves: the paper's Algorithm 1, without I/O.

Every consumer of a group reads the same registries (who subscribes to what, how many partitions each topic has), sorts
them, and takes its own range of each topic; nobody tells anybody. What it takes it claims with a node that exists once
and goes with its session. While two have not read the same, their ranges may overlap: the second to claim finds the
node taken, releases all that it has, and begins again. When all have read the same, each partition has one owner.

The ranges are those of Kafka 0.8 and of the assignor `range`: where the partitions cannot be divided evenly, the first
consumers get one more. So the two ways to coordinate share the same partitions out alike.

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
    """What a consumer has read before it takes its share.

    :param subscriptions: of each consumer of the group, by its id, the topics that it wants.
    :param partition_counts: how many partitions each topic has; of topics that do not exist nothing is said.
    """

    subscriptions: Mapping[str, Collection[str]]
    partition_counts: Mapping[str, int]


def range_assignment(consumer_id: str, registries: SubscriptionSnapshot) -> list[TopicPartition]:
    """Return the partitions that a consumer owns once all have read these registries, sorted; of each topic a range.

    >>> two = {"ann": ["clicks"], "bob": ["clicks"]}
    >>> share_of("bob", Registries(two, {"clicks": 5}))
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
    """What has to be done next on the way to partitions."""

    REGISTER = enum.auto()
    """Say in the group's registry that this consumer wants `ZooKeeperAssignment.topics`; then `on_registered`."""
    RELEASE = enum.auto()
    """Delete this consumer's nodes of `ZooKeeperAssignment.held`, those that there are; then `on_released`."""
    PAUSE = enum.auto()
    """Wait until somebody else may have released what was refused; then `on_paused`."""
    READ = enum.auto()
    """After `on_reading`, read the registries, and watch them; then `on_read`."""
    CLAIM = enum.auto()
    """After `on_claiming`, create nodes for all of `ZooKeeperAssignment.held`, or for none.

    Then `on_claimed` or `on_refused`.
    """


class ZooKeeperAssignment:
    """What one consumer owns, and how it comes to that. Not thread-safe: the consumer guards it.

    Invariant: every owner node that this consumer's session may have in the tree is in `held`, also while nobody
    knows how a claim ended. So to release `held` is to release everything.

    :param consumer_id: a name that no other consumer of the group has.
    """

    is_cooperative = False
    """All partitions are given up before others are claimed, as in the paper."""
    is_leader = False
    """Nobody shares out for others, so nobody has to look after their topics."""
    fenced: Failure | None = None
    """Nobody can take another one's place."""

    def __init__(self, group: str, consumer_id: str) -> None:
        self.group = group
        self.consumer_id = consumer_id
        self.topics: frozenset[str] = frozenset()
        """What this consumer wants."""
        self.held: frozenset[TopicPartition] = frozenset()
        """What this consumer has claimed in its present session."""
        self.joining = False
        self.rejoin_needed = True
        self.lost = False
        """The session is lost, or about to be: the partitions that the application still has may be others' already."""
        self.reason = "first join"
        self.session = 0
        """Counts sessions: how a step ended that was begun in an earlier one means nothing any more."""
        self._again = ""
        self._registered: frozenset[str] | None = None
        self._registries: SubscriptionSnapshot | None = None
        """What was read last; None: something has changed since."""
        self._is_old = False
        """Whether what is being read just now has changed already."""
        self._must_pause = False
        self._owns = False
        """Whether `held` was claimed, and was neither released nor lost."""
        self._heard_until_s = math.inf

    # --- what the application's side asks for -----------------------------------------------------------

    def rejoin(self, reason: str) -> None:
        """Take partitions anew with the next poll, or when the attempt that is under way has ended."""
        if self.joining:
            self._again = reason
        elif not self.rejoin_needed:
            self.rejoin_needed = True
            self.reason = reason

    def on_given_up(self) -> None:
        """Of the partitions that were lost the application has none any more."""
        self.lost = False

    @property
    def owns(self) -> bool:
        """Whether the partitions in `held` are this consumer's, as far as it knows."""
        return self._owns

    @property
    def until_s(self) -> float:
        """Until when, by the monotonic clock, no other can own what this consumer owns; long ago where it owns nothing.

        Whoever hands out records looks at the clock himself: in a process that was stopped nobody else has, yet.
        """
        return self._heard_until_s if self._owns else -math.inf

    def on_heard(self, until_s: float) -> None:
        """The servers live, and end this consumer's session not before `until_s` if they hear nothing more of it."""
        self._heard_until_s = until_s

    def on_silence(self) -> None:
        """`until_s` has passed: what was owned is lost."""
        if self._owns:
            self.on_session_lost("no word from the tree")

    # --- taking partitions ------------------------------------------------------------------------------

    def begin(self, topics: Collection[str]) -> None:
        """Begin to take partitions of these topics. Those that this consumer has had it has given up."""
        self.topics = frozenset(topics)
        self.joining = True
        self._again = ""
        self._owns = False

    def next_step(self) -> AssignmentStep | None:
        """Return what has to be done next; None: `held` is this consumer's."""
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
        """The group's registry has this consumer with `topics`; what was read before does not know that."""
        self._registered = self.topics
        self._registries = None

    def on_released(self) -> None:
        """This consumer has no owner nodes any more."""
        self.held = frozenset()

    def on_paused(self) -> None:
        """Others have had time to release what this consumer wants."""
        self._must_pause = False

    def on_reading(self) -> None:
        """The registries are about to be read."""
        self._is_old = False

    def on_read(self, registries: SubscriptionSnapshot) -> None:
        """Take what was read. Where it gives this consumer another share than it has, it must begin again."""
        if self._is_old:
            return  # it may be older than the watch that has fired, which fires once
        self._registries = registries
        if self._owns and range_assignment(self.consumer_id, registries) != sorted(self.held):
            self.rejoin("consumers or partitions have come or gone")

    def on_claiming(self) -> frozenset[TopicPartition]:
        """A claim is about to be made; from now on it may have been done. Returns the partitions."""
        assert self._registries is not None
        self.held = frozenset(range_assignment(self.consumer_id, self._registries))
        return self.held

    def on_refused(self) -> None:
        """A partition belongs to another consumer, or nobody knows how the claim ended."""
        self._must_pause = True
        self._registries = None

    def on_claimed(self) -> list[TopicPartition]:
        """All that was claimed is this consumer's; returns it, sorted."""
        self._owns = True
        self.joining = self.lost = False
        self.rejoin_needed = bool(self._again)
        self.reason, self._again = self._again, ""
        return sorted(self.held)

    def on_join_failed(self) -> None:
        """The attempt to take partitions has ended, well or with an error that was raised; the next poll tries anew."""
        self.joining = False

    # --- what happens -----------------------------------------------------------------------------------

    @property
    def must_look(self) -> bool:
        """Whether the registries have changed since they were read, though this consumer has its share."""
        return self._owns and self._registries is None

    def on_change(self) -> None:
        """A watch says that the registries are not what was read any more."""
        self._registries = None
        self._is_old = True

    def on_session_lost(self, reason: str) -> None:
        """Nothing in the tree is this consumer's any more, or will not be before long."""
        self.session += 1
        self._registered = self._registries = None
        self.held = frozenset()
        self._must_pause = False
        self._leave(reason)

    def on_left(self, reason: str) -> None:
        """This consumer has left the group; it begins anew with the next poll. What it held may still be there."""
        self._registered = self._registries = None
        self._leave(reason)

    def _leave(self, reason: str) -> None:
        self._owns = False
        self.lost = True
        if not self.joining:
            self.rejoin(reason)
