"""What a consumer reads and how far it is: topics or partitions asked for, partitions it has, positions in each.

Three offsets per partition, in this order always: `done` <= `position` <= `fetch_offset`.

- `fetch_offset`: the next one to ask the broker for; runs ahead of the application (prefetch).
- `position`: the next one to hand to the application.
- `done`: the application has asked for more after it had seen everything below, so it has dealt with that.
  Auto-commit commits this one: a record in hand when the program dies is delivered again (at least once).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from barnabas.errors import ConfigurationError
from barnabas.model import NO_LEADER_EPOCH, TopicPartition
from barnabas.protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

NOWHERE = "none"
OUT_OF_RANGE = -1
"""The doubt about a position that the leader refused."""
RESET_TIMESTAMPS = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}


class AssignedPartition:
    """How far one assigned partition has been read."""

    __slots__ = (
        "buffered_bytes",
        "committed",
        "committed_version",
        "done",
        "fetch_offset",
        "high_watermark",
        "last_turn",
        "leader_epoch",
        "paused",
        "position",
        "reset",
        "tp",
        "validation_cause",
        "version",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.fetch_offset: int | None = None
        """None while the position is not known."""
        self.position: int | None = None
        self.done: int | None = None
        self.committed: int | None = None
        """What was committed last."""
        self.committed_version = -1
        """`version` when the application committed what it had in hand; -1: it did not."""
        self.reset: str | None = None
        """`earliest` or `latest`: go there, whatever was committed. `none`: only a seek can help."""
        self.leader_epoch = NO_LEADER_EPOCH
        """Of the last batch that was fetched; -1 after a seek, when nothing is known of what lies before."""
        self.validation_cause: int | None = None
        """Why the log may have lost records before `fetch_offset`: a batch with this later leader epoch follows, or
        OUT_OF_RANGE. Nothing is fetched before the leader has said where `leader_epoch` ends (KIP-320)."""
        self.paused = False
        self.version = 0
        """Counts seeks; what was fetched before one is not handed out after it."""
        self.buffered_bytes = 0
        self.last_turn = 0
        """When a fetch last brought something, as the number of all that was brought until then."""
        self.high_watermark: int | None = None
        """The end of the partition, as the last answer said."""

    def move_to(self, offset: int) -> None:
        """Go on at `offset`, which the application chose or was found for it."""
        self.fetch_offset = self.position = self.done = offset
        self.leader_epoch, self.validation_cause = NO_LEADER_EPOCH, None
        self.reset = None
        self.version += 1

    def refetch(self) -> None:
        """Fetch again what was fetched and not handed out."""
        self.fetch_offset = self.position
        self.version += 1

    def forget_position(self, reset: str | None) -> None:
        """Find a position again: by the policy `reset`, or as after the assignment."""
        self.fetch_offset = self.position = self.done = None
        self.leader_epoch, self.validation_cause = NO_LEADER_EPOCH, None
        self.reset = reset
        self.version += 1


class Subscription:
    """What was asked for and what was assigned. Not thread-safe: the consumer guards it."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.manual = False
        self.partitions: dict[TopicPartition, AssignedPartition] = {}

    @property
    def by_topics(self) -> bool:
        """Whether topics were asked for, so that partitions are assigned by a group, or are all of them."""
        return bool(self.topics) or self.pattern is not None

    def subscribe(self, topics: Iterable[str], pattern: str | re.Pattern[str] | None) -> None:
        """Ask for topics by name, or by a regular expression that their whole name matches.

        :raises ConfigurationError: partitions were assigned by hand, or nothing or both are given.
        """
        names = frozenset(topics)
        if pattern is not None and not isinstance(pattern, str | re.Pattern):
            raise TypeError(f"pattern must be a regular expression, not {pattern!r}")
        if self.manual:
            raise ConfigurationError("partitions were assigned by hand; call unsubscribe() before subscribe()")
        if bool(names) == (pattern is not None):
            raise ConfigurationError("subscribe needs topics or a pattern, one of the two")
        self.topics = names
        try:
            self.pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise ConfigurationError(f"pattern {pattern!r} is not a regular expression: {error}") from None

    def match(self, names: Iterable[str]) -> bool:
        """Take the topics that match the pattern out of all `names`; return whether that changed anything."""
        assert self.pattern is not None
        matching = frozenset(name for name in names if self.pattern.fullmatch(name))
        changed = matching != self.topics
        self.topics = matching
        return changed

    def assign_by_hand(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; positions of those that were there already stay.

        :raises ConfigurationError: topics were subscribed to.
        """
        if self.by_topics:
            raise ConfigurationError("topics were subscribed to; call unsubscribe() before assign()")
        self.manual = True
        self.replace(partitions)

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Make `partitions` the assignment; positions of those that were there already stay."""
        self.partitions = {tp: self.partitions.get(tp) or AssignedPartition(tp) for tp in partitions}

    def clear_partitions(self) -> list[TopicPartition]:
        """Give all partitions up; return which they were."""
        given_up = list(self.partitions)
        self.partitions = {}
        return given_up

    def unsubscribe(self) -> None:
        """Want nothing, have nothing."""
        self.topics = frozenset()
        self.pattern = None
        self.manual = False
        self.partitions = {}

    def check_something_to_read(self) -> None:
        """:raises ConfigurationError: nothing was asked for, so that waiting for records would never end."""
        if not self.by_topics and not self.manual:
            raise ConfigurationError("nothing to read: call subscribe('a-topic') or assign([('a-topic', 0)]) before")

    def state(self, tp: TopicPartition) -> AssignedPartition:
        """Return the state of an assigned partition.

        :raises ConfigurationError: it is not assigned to this consumer.
        """
        state = self.partitions.get(tp)
        if state is None:
            have = ", ".join(str(each) for each in self.partitions) or "none"
            raise ConfigurationError(f"{tp} is not assigned to this consumer (assigned: {have})")
        return state

    def without_position(self) -> list[AssignedPartition]:
        """Return the partitions whose position must be looked up."""
        return [state for state in self.partitions.values() if state.fetch_offset is None and state.reset != NOWHERE]

    @property
    def wants_positions(self) -> bool:
        """Whether a position must be looked up, or be confirmed by a leader."""
        return any(
            state.validation_cause is not None or (state.fetch_offset is None and state.reset != NOWHERE)
            for state in self.partitions.values()
        )

    def nowhere(self) -> list[TopicPartition]:
        """Return the partitions that have no place to start from, unless the application seeks."""
        return [state.tp for state in self.partitions.values() if state.reset == NOWHERE]

    def owns(self, state: AssignedPartition) -> bool:
        """Whether `state` is still that of an assigned partition."""
        return self.partitions.get(state.tp) is state
