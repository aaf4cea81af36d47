"""Commits of a group's member that the coordinator refuses, because the group has rebalanced."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client import interceptors as interceptors_module
from barnabas.client.cluster import Cluster
from barnabas.client.config import ConsumerConfig
from barnabas.client.consumer.call_steps import Commit
from barnabas.client.consumer.state import ConsumerState
from barnabas.client.consumer.sync_async_drivers import Background, LoopGuard
from barnabas.client.interceptors import ConsumerInterceptor, ConsumerInterceptors
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, ErrorCode, FencedError
from barnabas.groups.subscriptions import encode_assignment
from barnabas.model import OffsetAndMetadata, TopicPartition
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.sync_group import SyncGroupResponse

HERE = TopicPartition("t", 0)


class FakeCluster(Cluster):
    """Its coordinator answers every commit with one code."""

    def __init__(self, config, code):
        super().__init__(config, dial=None, clock=ManualClock(), random=lambda: 0.5)
        self.code = code
        self.requests = []

    async def ask_coordinator(self, group, request, **_options):
        await asyncio.sleep(0)
        self.requests.append(request)
        part = OffsetCommitResponsePartition(partition_index=HERE.partition, error_code=self.code)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name=HERE.topic, partitions=[part])])


class Member:
    """A member `m1` in generation 1, that has one partition."""

    def __init__(self, code, *, is_member=True, interceptors=(), **settings):
        config = ConsumerConfig(group="g", **settings)
        guard = LoopGuard()
        self.cluster = FakeCluster(config, code)
        self.state = ConsumerState(config, guard, self.cluster.clock, ConsumerInterceptors(interceptors))
        self.state.subscription.subscribe([HERE.topic], None)
        self.state.subscription.replace([HERE])
        self.membership = self.state.membership
        if is_member:
            self.membership.join_request([HERE.topic])
            self.membership.on_join(
                JoinGroupResponse(
                    error_code=0, generation_id=1, protocol_name="range", leader="m2", member_id="m1", members=[]
                )
            )
            self.membership.on_sync(SyncGroupResponse(error_code=0, assignment=encode_assignment([HERE])))
        self.background = Background(self.state, self.cluster, guard.waker)

    def commit(self, times=1):
        """Commit as calls of the application do; return the last error."""
        partition = self.state.subscription.state(HERE)
        works = [Commit({HERE: OffsetAndMetadata(5)}, done_with={partition: 5}) for _ in range(times)]

        async def main():
            async with asyncio.timeout(60):
                for work in works:
                    self.state.add_task(work)
                    self.background.run_pending()
                    while not work.done:  # noqa: ASYNC110  it is asked, as the application does
                        await asyncio.sleep(0)
            await self.background.close()

        asyncio.run(main())
        assert (partition.committed == 5) is (works[-1].error is None)
        return works[-1].error


def test_a_commit_says_who_commits():
    member = Member(ErrorCode.NONE)
    assert member.commit() is None
    (request,) = member.cluster.requests
    assert (request.member_id, request.generation_id_or_member_epoch) == ("m1", 1)
    assert not member.membership.rejoin_needed


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION]
)
def test_who_is_out_of_the_group_is_told_that_the_partitions_may_be_others_and_has_lost_them(code):
    member = Member(code)
    error = member.commit()
    assert isinstance(error, ApiError)
    assert error.code is code
    assert "has rebalanced, and other members may own the partitions" in str(error)
    assert member.membership.lost
    assert member.membership.rejoin_needed
    assert len(member.cluster.requests) == 1, "to ask again would not help"


def test_who_is_still_in_a_group_that_shares_anew_is_told_to_poll_first():
    member = Member(ErrorCode.REBALANCE_IN_PROGRESS)
    error = member.commit()
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert "poll, and then commit for the remaining partitions" in str(error)
    assert not member.membership.lost
    assert member.membership.rejoin_needed


def test_who_is_fenced_is_told_so_by_every_later_commit_without_asking():
    member = Member(ErrorCode.FENCED_INSTANCE_ID, group_instance_id="one")
    assert isinstance(member.commit(times=2), FencedError)
    assert len(member.cluster.requests) == 1


def test_who_is_no_member_does_not_commit_as_an_administrator_would():
    member = Member(ErrorCode.NONE, is_member=False)
    error = member.commit()
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert not member.cluster.requests


def test_an_error_that_has_nothing_to_do_with_the_membership_is_told_as_it_is():
    member = Member(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    error = member.commit()
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert not member.membership.rejoin_needed


class Watching(ConsumerInterceptor):
    """Notes the requests that were sent when its hooks are called."""

    def __init__(self):
        self.member = None
        self.seen = []

    async def before_commit(self, offsets, timeout_s):
        await asyncio.sleep(0)
        self.seen.append(("before", offsets, len(self.member.cluster.requests)))

    def on_commit(self, offsets):
        self.seen.append(("after", offsets, len(self.member.cluster.requests)))


def test_interceptors_see_offsets_before_and_after_their_commit():
    watching = Watching()
    watching.member = Member(ErrorCode.NONE, interceptors=[watching])
    assert watching.member.commit() is None
    offsets = {HERE: OffsetAndMetadata(5)}
    assert watching.seen == [("before", offsets, 0), ("after", offsets, 1)]


def test_interceptors_do_not_see_a_refused_commit_as_committed():
    watching = Watching()
    watching.member = Member(ErrorCode.UNKNOWN_MEMBER_ID, interceptors=[watching])
    assert watching.member.commit() is not None
    assert [name for name, *_ in watching.seen] == ["before"]


@pytest.mark.parametrize("hook", ["before_commit", "on_commit"])
def test_commit_succeeds_though_an_interceptor_raises(hook, caplog):
    class Failing(ConsumerInterceptor):
        pass

    def fail(*_arguments):
        raise RuntimeError("planted")

    setattr(Failing, hook, fail)
    assert Member(ErrorCode.NONE, interceptors=[Failing()]).commit(times=2) is None
    assert [line.getMessage().split(";")[0] for line in caplog.records] == [
        f"interceptor {Failing.__qualname__} raised RuntimeError('planted') in {hook}"
    ]


def test_commit_goes_on_when_an_interceptor_does_not_end(monkeypatch):
    monkeypatch.setattr(interceptors_module, "WAIT_S_MAX", 0.01)

    class Endless(ConsumerInterceptor):
        async def before_commit(self, offsets, timeout_s):
            await asyncio.Event().wait()

    assert Member(ErrorCode.NONE, interceptors=[Endless()]).commit() is None
