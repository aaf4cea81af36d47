"""Joining, living and leaving, with a coordinator that is a list of answers."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from contextlib import nullcontext, suppress

import pytest

from barnabas.client.backoff import Backoff
from barnabas.client.cluster import ClusterView, PartitionView, TopicView
from barnabas.client.config import ConsumerConfig
from barnabas.client.consumer.call_steps import FOREVER_S, Wait
from barnabas.client.consumer.classic_group_session import ClassicGroupSession
from barnabas.client.consumer.classic_membership import ClassicMembership
from barnabas.client.consumer.state import ConsumerState
from barnabas.client.consumer.sync_async_drivers import LoopGuard
from barnabas.client.permissions import with_permission
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, DisconnectedError, ErrorCode
from barnabas.groups.subscriptions import encode_assignment, encode_subscription
from barnabas.model import TopicPartition
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from barnabas.protocol.messages.heartbeat import HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.simulation.loop import SimulatedLoop

VIEW = ClusterView(topics={"t": TopicView("t", partitions=(PartitionView(0, 1), PartitionView(1, 1)))})


class FakeCluster:
    """Gives the answers in turn; an exception among them is raised."""

    def __init__(self, *answers):
        self.answers = deque(answers)
        self.requests = []
        self.forgotten = []
        self.backoff = Backoff(0, 0, lambda: 0.5)

    async def ask_coordinator(self, group, request, *, purpose="", version_max=None, timeout_s=None):
        self.requests.append(request)
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def forget_coordinator(self, group):
        self.forgotten.append(group)

    def use_topics(self, topics):
        pass

    def refused(self, error, *needs):
        return with_permission(error, "User:bob", *needs)

    async def refresh(self):
        return VIEW


class SilentCluster(FakeCluster):
    """Never answers a join; on a connection the answers come in the order of the requests, so none comes after it."""

    def __init__(self):
        super().__init__()
        self.stuck = set()
        self.is_stuck = asyncio.Event()
        self.answered = []

    async def ask_coordinator(self, group, request, *, purpose="coordinator", version_max=None, timeout_s=None):
        if isinstance(request, JoinGroupRequest):
            self.stuck.add(purpose)
            self.is_stuck.set()
        if purpose in self.stuck:
            await asyncio.get_running_loop().create_future()
        self.answered.append(type(request))
        return LeaveGroupResponse(error_code=0)


class Fixture:
    def __init__(self, *answers, alive=True, owned=()):
        self.cluster = FakeCluster(*answers)
        self.state = ConsumerState(ConsumerConfig(group="g", heartbeat_interval_ms=1), LoopGuard(), ManualClock())
        self.state.subscription.subscribe(["t"], None)
        self.state.subscription.replace(owned)
        self.membership = self.state.membership
        self.membership.is_cooperative = True
        if not alive:
            self.state.clock.advance(1_000)
        self.session = ClassicGroupSession(self.state, self.cluster, self.membership)

    @property
    def errors(self):
        return list(self.state.fetcher.errors)

    def join(self):
        return asyncio.run(self.session.join())

    def beat_once(self):
        """Join as member `m1`, then let the heartbeats run until they have changed something."""

        async def main():
            await self.session.join()
            task = asyncio.create_task(self.session.maintain())
            async with asyncio.timeout(60):
                await self.state.guard.wait_for_wake(Wait(FOREVER_S, self.state.guard.wake_count))
            task.cancel()

        asyncio.run(main())


def joined(*, leader="m2", error=0, member="m1"):
    metadata = encode_subscription(ConsumerProtocolSubscription(topics=["t"]), 0)
    members = [JoinGroupResponseMember(member_id=each, metadata=metadata) for each in ("m1", "m2")]
    return JoinGroupResponse(
        error_code=error,
        generation_id=3,
        protocol_name="range",
        leader=leader,
        member_id=member,
        members=members if leader == "m1" else [],
    )


def synced(error=0):
    return SyncGroupResponse(error_code=error, assignment=encode_assignment([TopicPartition("t", 1)]))


def test_a_join_goes_through_lost_connections_and_moved_coordinators():
    fixture = Fixture(
        DisconnectedError("gone"),
        joined(error=ErrorCode.NOT_COORDINATOR),
        joined(error=ErrorCode.MEMBER_ID_REQUIRED),
        joined(),
        synced(error=ErrorCode.REBALANCE_IN_PROGRESS),
        joined(),
        synced(),
    )
    assert fixture.join() == [("t", 1)]
    assert fixture.cluster.forgotten == ["g"]
    assert not fixture.membership.joining


def test_the_leader_hands_in_the_shares_of_all():
    fixture = Fixture(joined(leader="m1"), synced())
    fixture.join()
    request = fixture.cluster.requests[-1]
    assert isinstance(request, SyncGroupRequest)
    assert sorted(each.member_id for each in request.assignments) == ["m1", "m2"]


def test_a_group_that_does_not_want_this_member_says_why():
    fixture = Fixture(joined(error=ErrorCode.GROUP_MAX_SIZE_REACHED))
    with pytest.raises(ApiError, match="as many members as the broker allows"):
        fixture.join()
    assert not fixture.membership.joining


def test_a_member_that_lost_its_partitions_in_a_join_hears_of_it_before_it_joins_again():
    fixture = Fixture(joined(error=ErrorCode.UNKNOWN_MEMBER_ID), owned=[TopicPartition("t", 0)])
    assert fixture.join() is None
    assert fixture.membership.lost
    fixture = Fixture(joined(error=ErrorCode.UNKNOWN_MEMBER_ID), joined(), synced())
    assert fixture.join() == [("t", 1)]  # it had none


def test_a_heartbeat_brings_word_of_a_rebalance():
    fixture = Fixture(joined(), synced(), HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    fixture.beat_once()
    assert fixture.membership.rejoin_needed
    assert not fixture.membership.lost


def test_a_heartbeat_that_is_lost_does_no_harm():
    fixture = Fixture(joined(), synced(), DisconnectedError("gone"))
    fixture.beat_once()
    assert fixture.membership.is_member
    assert not fixture.errors


def test_a_member_that_is_fenced_is_told():
    fixture = Fixture(joined(), synced(), HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
    fixture.beat_once()
    assert fixture.membership.fenced is not None
    assert fixture.membership.rejoin_needed  # so that the next poll says it


def test_a_member_that_does_not_poll_leaves(caplog):
    fixture = Fixture(joined(), synced(), LeaveGroupResponse(error_code=0), alive=False)
    fixture.beat_once()
    assert isinstance(fixture.cluster.requests[-1], LeaveGroupRequest)
    assert fixture.membership.lost
    assert "max_poll_interval_ms" in caplog.text


def test_leaving_does_not_stand_behind_a_join_that_waits_for_others():
    fixture = Fixture()
    fixture.session = ClassicGroupSession(fixture.state, cluster := SilentCluster(), fixture.membership)
    fixture.membership.member_id = "m1"

    async def main():
        join = asyncio.create_task(fixture.session.join())
        await cluster.is_stuck.wait()
        join.cancel()
        await asyncio.gather(join, return_exceptions=True)
        async with asyncio.timeout(60):
            await fixture.session.leave("closed")

    asyncio.run(main())
    assert cluster.answered == [LeaveGroupRequest]


class HeldLock(nullcontext):
    """Says whether somebody holds it."""

    held = 0

    def __enter__(self):
        self.held += 1

    def __exit__(self, kind, error, trace):
        self.held -= 1


def test_the_membership_is_changed_under_the_guard_only(monkeypatch):
    guard, changes = LoopGuard(), []
    guard.lock = HeldLock()

    def watched(name):
        change = getattr(ClassicMembership, name)

        def under_guard(*arguments):
            changes.append((name, guard.lock.held > 0))
            return change(*arguments)

        return under_guard

    names = ("join_request", "on_join", "on_sync", "on_heartbeat", "on_left", "on_join_failed")
    for name in names:
        monkeypatch.setattr(ClassicMembership, name, watched(name))
    monkeypatch.setattr(sys.modules[__name__], "LoopGuard", lambda: guard)
    fixture = Fixture(joined(), synced(), HeartbeatResponse(error_code=0), LeaveGroupResponse(error_code=0))
    fixture.beat_once()
    asyncio.run(fixture.session.leave("test"))
    assert {name for name, _ in changes} == set(names)
    assert all(is_held for _, is_held in changes), changes


def test_leaving_without_a_coordinator_does_no_harm():
    fixture = Fixture(joined(), synced(), DisconnectedError("gone"))
    fixture.join()
    asyncio.run(fixture.session.leave("test"))
    assert not fixture.membership.is_member


class UnsettledCluster(FakeCluster):
    """A coordinator that wants every member to join again, at once."""

    def __init__(self, answer):
        super().__init__()
        self.backoff = Backoff(100, 1_000, lambda: 0.5)
        self.answer = answer
        self.joins = 0

    async def ask_coordinator(self, group, request, *, purpose="coordinator", version_max=None, timeout_s=None):
        self.joins += 1
        return self.answer


def test_a_coordinator_that_wants_another_join_again_and_again_is_asked_rarely():
    loop = SimulatedLoop()
    fixture = Fixture()
    answer = joined(error=ErrorCode.MEMBER_ID_REQUIRED)
    fixture.session = ClassicGroupSession(fixture.state, cluster := UnsettledCluster(answer), fixture.membership)

    async def join():
        with suppress(TimeoutError):
            async with asyncio.timeout(60):
                await fixture.session.join()

    loop.run_until_complete(join())
    loop.close()
    assert 30 < cluster.joins < 90
