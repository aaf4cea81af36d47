"""One consumer's membership in a group, as a state machine without I/O: Kafka's classic group protocol.

A member joins, the coordinator names one member the leader, the leader assigns the partitions, each member gets
its part with its sync; heartbeats say that it lives, and bring word that the group must do all this again.

Requests come out as messages, answers go in as messages; the shell carries them.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence

from barnabas.errors import ErrorCode, FencedError, KafkaError
from barnabas.groups.assignors import ASSIGNORS
from barnabas.model import TopicPartition
from barnabas.protocol.codec import decode, encode_bytes
from barnabas.protocol.messages.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.protocol.messages.leave_group import LeaveGroupRequest
from barnabas.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

PROTOCOL_TYPE = "consumer"
NO_GENERATION = -1
SUBSCRIPTION_VERSION = 0
"""Eager members own nothing while they rebalance, so they have no more to say than version 0 can."""

LEAVE_GROUP_VERSION_MAX = 2
"""Later versions let several members leave at once."""


class Joined(enum.Enum):
    """What an answer to a join means for the next step."""

    AS_LEADER = enum.auto()
    AS_FOLLOWER = enum.auto()
    AGAIN = enum.auto()


class Membership:
    """The member's side of a group. Not thread-safe: the consumer guards it."""

    def __init__(
        self,
        group: str,
        *,
        instance_id: str | None,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        strategies: Sequence[str],
    ) -> None:
        self.group = group
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = NO_GENERATION
        self.rejoin_needed = True
        self.joining = False
        self.is_leader = False
        self.lost = False
        """The group went on without this member: its partitions are others' already."""
        self.reason = "first join"
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._strategies = tuple(strategies)
        self._strategy = self._strategies[0]
        self._members: dict[str, tuple[str, ...]] = {}

    # --- joining ----------------------------------------------------------------------------------------

    def join_request(self, topics: Collection[str]) -> JoinGroupRequest:
        """Return the request to become a member of the next generation."""
        self.joining = True
        subscription = encode_subscription(topics)
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=subscription) for name in self._strategies],
            reason=self.reason,
        )

    def on_join(self, response: JoinGroupResponse) -> Joined:
        """Take the answer to a join.

        :raises KafkaError: the group does not want this member, or the coordinator is elsewhere (retriable).
        :raises FencedError: another member has taken its instance id.
        """
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return Joined.AGAIN
        if code is not ErrorCode.NONE:
            self._check(code)
            return Joined.AGAIN
        self.member_id = response.member_id
        self.generation = response.generation_id
        self.is_leader = response.leader == response.member_id
        self._strategy = response.protocol_name or self._strategies[0]
        if not self.is_leader:
            return Joined.AS_FOLLOWER
        self._members = {member.member_id: decode_subscription(member.metadata) for member in response.members}
        return Joined.AS_LEADER

    def topics_of_members(self) -> set[str]:
        """Return the topics that the leader has to share out."""
        return {topic for topics in self._members.values() for topic in topics}

    def sync_request(self, partition_counts: Mapping[str, int] | None) -> SyncGroupRequest:
        """Return the request for this member's partitions; as the leader's, it carries everybody's.

        :param partition_counts: of the topics that members want; None from a follower.
        """
        assignments = []
        if partition_counts is not None:
            shares = ASSIGNORS[self._strategy](self._members, partition_counts)
            assignments = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(share))
                for member_id, share in shares.items()
            ]
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._strategy,
            assignments=assignments,
        )

    def on_sync(self, response: SyncGroupResponse) -> list[TopicPartition] | None:
        """Take the answer to a sync: this member's partitions, or None if it has to join again.

        :raises KafkaError: as `on_join`.
        :raises FencedError: as `on_join`.
        """
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            self._check(code)
            return None
        self.joining = self.rejoin_needed = self.lost = False
        self.reason = ""
        return decode_assignment(response.assignment)

    def _check(self, code: ErrorCode) -> None:
        """Prepare to join again after an error that allows it, or raise."""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._forget(code)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin(code.name)
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            raise FencedError(
                f"group {self.group!r}: another consumer has joined as group_instance_id={self.instance_id!r}; "
                "give each its own"
            )
        else:
            raise KafkaError(code, f"group {self.group!r}{_ADVICE.get(code, '')}")

    def _forget(self, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.generation = NO_GENERATION
        self.lost = True
        self.rejoin(code.name)

    def rejoin(self, reason: str) -> None:
        """Join again with the next poll."""
        if not self.rejoin_needed:
            self.rejoin_needed = True
            self.reason = reason

    # --- living -----------------------------------------------------------------------------------------

    @property
    def is_member(self) -> bool:
        """Whether the coordinator expects heartbeats of this member."""
        return self.generation != NO_GENERATION and not self.joining

    def heartbeat_request(self) -> HeartbeatRequest:
        """Return the sign of life."""
        return HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def on_heartbeat(self, error_code: int, generation: int) -> None:
        """Take the answer to a heartbeat that was sent in `generation`; an older one means nothing any more.

        :raises KafkaError: as `on_join`.
        :raises FencedError: as `on_join`.
        """
        code = ErrorCode.of(error_code)
        if code is not ErrorCode.NONE and generation == self.generation and not self.joining:
            self._check(code)

    def on_commit_refused(self, code: ErrorCode) -> None:
        """A commit was refused because the group has moved on; join again."""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._forget(code)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin(code.name)

    # --- leaving ----------------------------------------------------------------------------------------

    def leave_request(self) -> LeaveGroupRequest | None:
        """Return the request to leave, or None for who is no member, or a static one that may come back."""
        if not self.member_id or self.instance_id is not None:
            return None
        return LeaveGroupRequest(group_id=self.group, member_id=self.member_id)

    def on_join_failed(self) -> None:
        """The attempt to join ended with an error that was raised; the next poll tries anew."""
        self.joining = False

    def on_left(self, reason: str) -> None:
        """The member is none any more; it starts anew with the next poll."""
        self.member_id = ""
        self.generation = NO_GENERATION
        self.lost = True
        self.joining = False
        self.rejoin(reason)


_ADVICE = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: ": its members use another partition_assignment_strategy; use theirs",
    ErrorCode.INVALID_SESSION_TIMEOUT: ": the broker does not allow this session_timeout_ms",
    ErrorCode.GROUP_MAX_SIZE_REACHED: ": the group has as many members as the broker allows",
    ErrorCode.INVALID_GROUP_ID: ": a group's name must not be empty",
}


def encode_subscription(topics: Collection[str]) -> bytes:
    """Return what a member tells the leader that it wants; a version stands before the message."""
    message = ConsumerProtocolSubscription(topics=sorted(topics))
    return SUBSCRIPTION_VERSION.to_bytes(2, "big") + encode_bytes(message, SUBSCRIPTION_VERSION)


def decode_subscription(data: bytes) -> tuple[str, ...]:
    """Return the topics that a member wants, in whatever version its client writes."""
    version = min(int.from_bytes(data[:2], "big"), 3)
    return tuple(decode(ConsumerProtocolSubscription, data, version, 2).topics)


def encode_assignment(partitions: Collection[TopicPartition]) -> bytes:
    """Return a member's share as the leader hands it in."""
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    parts = [AssignedPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
    return SUBSCRIPTION_VERSION.to_bytes(2, "big") + encode_bytes(
        ConsumerProtocolAssignment(assigned_partitions=parts), SUBSCRIPTION_VERSION
    )


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """Return a member's partitions; no bytes at all are no partitions."""
    if not data:
        return []
    version = min(int.from_bytes(data[:2], "big"), 3)
    assignment = decode(ConsumerProtocolAssignment, data, version, 2)
    return [TopicPartition(each.topic, number) for each in assignment.assigned_partitions for number in each.partitions]
