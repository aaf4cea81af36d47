"""The membership of a consumer in a group: Kafka's classic group protocol as a state machine without I/O.

Each member joins. The coordinator makes one member the leader, which assigns the partitions. Each member receives its
partitions in the response to its sync request. Responses to heartbeats announce the next rebalance.

An eager member gives up its partitions before it joins. A cooperative member (KIP-429) keeps its partitions during the
join, and lists them in the join request. It then gives up the revoked partitions, and joins again.

The methods return requests and take responses; `ClassicGroupSession` exchanges them with the coordinator.
"""

from __future__ import annotations

import enum
import logging
import math
from collections.abc import Collection, Mapping, Sequence

from barnabas.errors import ApiError, ErrorCode, Failure, FencedError, MalformedMessageError
from barnabas.groups.assignors import ASSIGNORS, NO_GENERATION, NOTHING, Claim
from barnabas.groups.subscriptions import (
    CONSUMER_PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.model import TopicPartition
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from barnabas.protocol.messages.leave_group import LeaveGroupRequest
from barnabas.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

log = logging.getLogger(__name__)

LEAVE_GROUP_VERSION_MAX = 2
"""The last version of LeaveGroup with a single member. In later versions, a request may contain several members."""

OUT_OF_GROUP = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION})
"""The errors after which the member must join again.

OffsetCommit returns GROUP_ID_NOT_FOUND for a missing group since version 9 (KIP-848).
"""


class JoinOutcome(enum.Enum):
    """The next step after a join response."""

    AS_LEADER = enum.auto()
    AS_FOLLOWER = enum.auto()
    AGAIN = enum.auto()


class ClassicMembership:
    """The member's side of a classic group. Not thread-safe: callers must hold the consumer's guard."""

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
        """True if a rebalance took place without this member, so that other members own its partitions."""
        self.fenced: Failure | None = None
        """The error if another consumer with the same instance id has fenced this one. It is final, because another
        join would fence the other consumer.
        """
        self.reason = "first join"
        self.is_cooperative = all(ASSIGNORS[strategy].is_cooperative for strategy in strategies)
        """True if all strategies are cooperative.

        As in Kafka, a member with any eager strategy gives up all partitions before it joins.
        """
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._strategies = tuple(strategies)
        self._strategy = self._strategies[0]
        self._members: dict[str, ConsumerProtocolSubscription] = {}
        self._assigned = NOTHING
        self._again = ""
        """The reason to join again after the current join; empty if there is none."""

    # --- joining ----------------------------------------------------------------------------------------

    def join_request(self, topics: Collection[str], owned: Collection[TopicPartition] = ()) -> JoinGroupRequest:
        """Return the request to join the next generation.

        :param owned: the current partitions of this member; empty for an eager member.
        """
        self.joining = True
        self._again = ""
        has = Claim(tuple(owned), self._assigned.generation)
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=self._subscription(name, topics, has))
                for name in self._strategies
            ],
            reason=self.reason,
        )

    def _subscription(self, strategy: str, topics: Collection[str], has: Claim) -> bytes:
        assignor = ASSIGNORS[strategy]
        return encode_subscription(assignor.subscribe(topics, has, self._assigned), assignor.subscription_version)

    def on_join(self, response: JoinGroupResponse) -> JoinOutcome:
        """Apply the response to a join request.

        :raises ApiError: the coordinator rejects this member, or the group has another coordinator (retriable).
        :raises FencedError: another member has the same instance id.
        """
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return JoinOutcome.AGAIN
        if code is not ErrorCode.NONE:
            self._check(code)
            return JoinOutcome.AGAIN
        self.member_id = response.member_id
        self.generation = response.generation_id
        self.is_leader = response.leader == response.member_id
        self._strategy = response.protocol_name or self._strategies[0]
        if not self.is_leader or response.skip_assignment:
            # This static member, the leader of the group, has restarted. Its earlier assignment is still valid
            # (KIP-814).
            return JoinOutcome.AS_FOLLOWER
        self._members = {member.member_id: _subscription_of(member) for member in response.members}
        return JoinOutcome.AS_LEADER

    def topics_of_members(self) -> set[str]:
        """Return the topics whose partitions the leader assigns."""
        return {topic for subscription in self._members.values() for topic in subscription.topics}

    def sync_request(self, partition_counts: Mapping[str, int] | None) -> SyncGroupRequest:
        """Return the request for this member's partitions. The leader's request contains the assignment of all
        members.
        """
        assignments = []
        if partition_counts is not None:
            assignor = ASSIGNORS[self._strategy]
            topics = {member_id: each.topics for member_id, each in self._members.items()}
            claims = {member_id: assignor.claim(each) for member_id, each in self._members.items()}
            shares = assignor.assign(topics, partition_counts, claims)
            assignments = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(share))
                for member_id, share in shares.items()
            ]
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=self._strategy,
            assignments=assignments,
        )

    def on_sync(self, response: SyncGroupResponse) -> list[TopicPartition] | None:
        """Apply the response to a sync request; return this member's partitions, or None if the member must join again.

        :raises ApiError: as in `on_join`.
        :raises FencedError: as in `on_join`.
        """
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            self._check(code)
            return None
        partitions = decode_assignment(response.assignment)
        self._assigned = Claim(tuple(partitions), self.generation)
        self.joining = self.lost = False
        self.rejoin_needed = bool(self._again)
        self.reason, self._again = self._again, ""
        return partitions

    def _check(self, code: ErrorCode) -> None:
        """Prepare another join if the error allows it; otherwise raise the error."""
        if code in OUT_OF_GROUP:
            self._forget(code)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoin(code.name)
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            raise self._fence()
        else:
            raise ApiError.about(code, f"group {self.group!r}", _ADVICE.get(code, ""))

    def _forget(self, code: ErrorCode) -> None:
        if code is not ErrorCode.ILLEGAL_GENERATION:
            self.member_id = ""
        self.generation = NO_GENERATION
        self.lost = True
        self._rejoin(code.name)

    def _fence(self) -> FencedError:
        error = FencedError(
            f"group {self.group!r}: another consumer has joined as group_instance_id={self.instance_id!r}; "
            "give each consumer its own instance id, and close this one"
        )
        self.fenced = Failure.of(error)
        self.on_left(str(error))
        return error

    def rejoin(self, reason: str) -> None:
        """Join again in the next poll, or after the current join."""
        if self.joining:
            self._again = reason
        else:
            self._rejoin(reason)

    def _rejoin(self, reason: str) -> None:
        if not self.rejoin_needed:
            self.rejoin_needed = True
            self.reason = reason

    # --- living -----------------------------------------------------------------------------------------

    @property
    def valid_until_s(self) -> float:
        """Infinity: the member learns from its heartbeats when the coordinator has assigned the partitions to other
        members.
        """
        return math.inf

    def on_expired(self) -> None:
        """Never called, because `valid_until_s` is infinite."""

    @property
    def is_member(self) -> bool:
        """True if the member must send heartbeats."""
        return self.generation != NO_GENERATION and not self.joining

    def heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def on_heartbeat(self, error_code: int, generation: int) -> None:
        """Apply the response to a heartbeat of `generation`. A response for an earlier generation is ignored.

        :raises ApiError: as in `on_join`.
        :raises FencedError: as in `on_join`.
        """
        code = ErrorCode.of(error_code)
        if code is not ErrorCode.NONE and generation == self.generation and not self.joining:
            self._check(code)

    def on_commit_refused(self, code: ErrorCode, generation: int) -> bool:
        """Join again, because the coordinator has rejected a commit of `generation`.

        :return: True if the member is no longer in the group; False if the group is rebalancing.
        :raises FencedError: as in `on_join`.
        """
        if code is ErrorCode.FENCED_INSTANCE_ID:
            raise self._fence()
        if self.joining or generation != self.generation:
            return self.generation == NO_GENERATION
        if code in OUT_OF_GROUP:
            self._forget(code)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoin(code.name)
        return self.lost

    def on_lost_given_up(self) -> None:
        """Record that the application has given up its lost partitions."""
        self.lost = False

    # --- leaving ----------------------------------------------------------------------------------------

    def leave_request(self) -> LeaveGroupRequest | None:
        """Return the leave request. Return None for a consumer that is not a member, and for a static member, which may
        return.
        """
        if not self.member_id or self.instance_id is not None:
            return None
        return LeaveGroupRequest(group_id=self.group, member_id=self.member_id)

    def on_join_failed(self) -> None:
        """Record that the join has failed; the next poll tries again."""
        self.joining = False

    def on_left(self, reason: str) -> None:
        """Record that the member has left the group; the next poll joins again."""
        self.member_id = ""
        self.generation = NO_GENERATION
        self.lost = True
        self.joining = False
        self._rejoin(reason)


def _subscription_of(member: JoinGroupResponseMember) -> ConsumerProtocolSubscription:
    """Return the subscription of a member.

    A member whose subscription cannot be decoded gets no partitions; the other members are not affected.
    """
    try:
        return decode_subscription(member.metadata)
    except MalformedMessageError as error:
        log.warning(
            "cannot decode the subscription of member %s: %s; the member gets no partitions", member.member_id, error
        )
        return ConsumerProtocolSubscription(topics=[])


_ADVICE = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: ": its members have no partition_assignment_strategy in common with "
    "this one; use theirs",
    ErrorCode.INVALID_SESSION_TIMEOUT: ": the broker does not allow this session_timeout_ms",
    ErrorCode.GROUP_MAX_SIZE_REACHED: ": the group has as many members as the broker allows",
    ErrorCode.INVALID_GROUP_ID: ": the name of a group must not be empty",
}
