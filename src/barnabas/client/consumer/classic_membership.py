"""One consumer's membership in a group, as a state machine without I/O: Kafka's classic group protocol.

A member joins, the coordinator names one member the leader, the leader assigns the partitions, each member gets
its part with its sync; heartbeats say that it lives, and bring word that the group must do all this again.

An eager member has given up its partitions before it joins. A cooperative one (KIP-429) says which ones it has,
keeps them while it joins, and joins once more when it has given up those that it shall not have any longer.

Requests come out as messages, responses go in as messages; `ClassicGroupSession` exchanges them with the coordinator.
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
"""Later versions let several members leave at once."""

OUT_OF_GROUP = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION})
"""The member has to join anew. OffsetCommit 9 and later says GROUP_ID_NOT_FOUND of a group that is gone (KIP-848)."""


class JoinOutcome(enum.Enum):
    """What an answer to a join means for the next step."""

    AS_LEADER = enum.auto()
    AS_FOLLOWER = enum.auto()
    AGAIN = enum.auto()


class ClassicMembership:
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
        """The group went on without this member: the partitions that it still has are others' already."""
        self.fenced: Failure | None = None
        """Another consumer has this one's instance id. That is the end: joining again would fence the other."""
        self.reason = "first join"
        self.is_cooperative = all(ASSIGNORS[strategy].is_cooperative for strategy in strategies)
        """As in Kafka: whoever may have to share in an eager way always gives up everything first."""
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._strategies = tuple(strategies)
        self._strategy = self._strategies[0]
        self._members: dict[str, ConsumerProtocolSubscription] = {}
        self._assigned = NOTHING
        self._again = ""
        """Why the group must share anew when the join that is under way has ended."""

    # --- joining ----------------------------------------------------------------------------------------

    def join_request(self, topics: Collection[str], owned: Collection[TopicPartition] = ()) -> JoinGroupRequest:
        """Return the request to become a member of the next generation.

        :param owned: the partitions that this member has; none, if it is an eager one.
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
        """Take the answer to a join.

        :raises ApiError: the group does not want this member, or the coordinator is elsewhere (retriable).
        :raises FencedError: another member has taken its instance id.
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
            # A static leader that was started again: what it assigned before holds on (KIP-814).
            return JoinOutcome.AS_FOLLOWER
        self._members = {member.member_id: _subscription_of(member) for member in response.members}
        return JoinOutcome.AS_LEADER

    def topics_of_members(self) -> set[str]:
        """Return the topics that the leader has to share out."""
        return {topic for subscription in self._members.values() for topic in subscription.topics}

    def sync_request(self, partition_counts: Mapping[str, int] | None) -> SyncGroupRequest:
        """Return the request for this member's partitions; as the leader's, it carries everybody's.

        :param partition_counts: of the topics that members want; None from a follower.
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
        """Take the answer to a sync: this member's partitions, or None if it has to join again.

        :raises ApiError: as `on_join`.
        :raises FencedError: as `on_join`.
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
        """Prepare to join again after an error that allows it, or raise."""
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
            "give each its own, and close this one"
        )
        self.fenced = Failure.of(error)
        self.on_left(str(error))
        return error

    def rejoin(self, reason: str) -> None:
        """Join again with the next poll, or when the join that is under way has ended."""
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
    def until_s(self) -> float:
        """For ever: the coordinator says itself when it has given a member's partitions to others."""
        return math.inf

    def on_silence(self) -> None:
        """Never called."""

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

        :raises ApiError: as `on_join`.
        :raises FencedError: as `on_join`.
        """
        code = ErrorCode.of(error_code)
        if code is not ErrorCode.NONE and generation == self.generation and not self.joining:
            self._check(code)

    def on_commit_refused(self, code: ErrorCode, generation: int) -> bool:
        """Join again, if a commit that was sent in `generation` was refused because the group has moved on.

        :return: whether this member is out of the group; else the group is about to share anew, or just has.
        :raises FencedError: as `on_join`.
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

    def on_given_up(self) -> None:
        """Of the partitions that were lost the application has none any more."""
        self.lost = False

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
        self._rejoin(reason)


def _subscription_of(member: JoinGroupResponseMember) -> ConsumerProtocolSubscription:
    """Return what a member joined with. A member that joined with other bytes gets no partitions; the rest of the group
    goes on."""
    try:
        return decode_subscription(member.metadata)
    except MalformedMessageError as error:
        log.warning("cannot read the subscription of member %s: %s; it gets no partitions", member.member_id, error)
        return ConsumerProtocolSubscription(topics=[])


_ADVICE = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: ": its members have no partition_assignment_strategy in common with "
    "this one; use theirs",
    ErrorCode.INVALID_SESSION_TIMEOUT: ": the broker does not allow this session_timeout_ms",
    ErrorCode.GROUP_MAX_SIZE_REACHED: ": the group has as many members as the broker allows",
    ErrorCode.INVALID_GROUP_ID: ": a group's name must not be empty",
}
