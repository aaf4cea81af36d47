"""The APIs of groups answer as Kafka does, also in their newest versions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.coordinators.runtime import EVENTS_PER_TICK
from barnabas.errors import ErrorCode
from barnabas.groups.records import StoredGroup, StoredMember
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.in_process_broker import Caller, run_with_broker

Run = Callable[[Callable[[Caller], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return lambda scenario: run_with_broker(tmp_path / "data", scenario)


def commit_to(group: str, caller: Caller, **member: Any) -> OffsetCommitRequest:
    """A commit by name and by id, for every version."""
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="clicks", topic_id=caller.id_of("clicks"), partitions=[part])
    return OffsetCommitRequest(group_id=group, topics=[topic], **member)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (2, ErrorCode.ILLEGAL_GENERATION),
        (8, ErrorCode.ILLEGAL_GENERATION),
        (9, ErrorCode.GROUP_ID_NOT_FOUND),
        (10, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_member_of_a_group_that_is_gone_is_told_so(run: Run, version: int, code: ErrorCode) -> None:
    async def scenario(caller: Caller) -> None:
        request = commit_to("gone", caller, generation_id_or_member_epoch=3, member_id="m")
        answer = await caller.call(request, version)
        assert [each.error_code for topic in answer.topics for each in topic.partitions] == [code]

    run(scenario)


def test_offsets_of_a_topic_that_does_not_exist_are_not_deleted(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        await caller.call(commit_to("g", caller))
        parts = [OffsetDeleteRequestPartition(partition_index=number) for number in (0, 9)]
        topics = [OffsetDeleteRequestTopic(name=name, partitions=parts) for name in ("clicks", "nowhere")]
        answer = await caller.call(OffsetDeleteRequest(group_id="g", topics=topics))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [[each.error_code for each in topic.partitions] for topic in answer.topics] == [
            [ErrorCode.NONE, unknown],
            [unknown, unknown],
        ]
        assert (await caller.call(OffsetDeleteRequest(group_id="h", topics=topics))).error_code == (
            ErrorCode.GROUP_ID_NOT_FOUND
        )

    run(scenario)


def test_a_group_that_was_deleted_has_no_offsets(run: Run) -> None:
    async def scenario(caller: Caller) -> None:
        await caller.call(commit_to("g", caller))
        for code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            (deleted,) = (await caller.call(DeleteGroupsRequest(groups_names=["g", "g"]))).results
            assert (deleted.group_id, deleted.error_code) == ("g", code)
        fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        (group,) = (await caller.call(fetch)).groups
        assert (group.error_code, group.topics) == (ErrorCode.NONE, [])

    run(scenario)


async def joined(caller: Caller, group: str) -> str:
    """Join a group without other members; return the id."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    member_id: str = (await caller.call(request, 3)).member_id
    return member_id


def test_why_members_left_stands_in_the_log_in_one_line(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(caller: Caller) -> None:
        leaving = [
            MemberIdentity(member_id=await joined(caller, "g"), reason="closed\nby its user" + "!" * 9_000),
            MemberIdentity(member_id="nobody", reason="never was here"),
        ]
        answer = await caller.call(LeaveGroupRequest(group_id="g", members=leaving))
        assert [each.error_code for each in answer.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
        (line,) = [each.getMessage() for each in caplog.records if "left" in each.getMessage()]
        assert line.startswith(
            f"1 member(s) left group 'g', including {leaving[0].member_id!r}; reason: 'closed\\nby its"
        )
        assert "\n" not in line
        assert len(line) < 500
        caplog.clear()
        await caller.call(LeaveGroupRequest(group_id="g", members=leaving))  # there is nobody any more
        without = [MemberIdentity(member_id=await joined(caller, "g"), reason=None)]
        assert (await caller.call(LeaveGroupRequest(group_id="g", members=without))).error_code == ErrorCode.NONE
        assert not [each for each in caplog.records if "left" in each.getMessage()]

    caplog.set_level("INFO")
    run(scenario)


def test_sessions_that_end_together_hold_up_nobody(tmp_path: Path) -> None:
    """Those of all groups begin when a partition is loaded, and end together where no member is there any more."""
    count = 3 * EVENTS_PER_TICK
    member = StoredMember("me", None, "me", "/127.0.0.1", 6_000, 6_000, b"", b"")
    stored = StoredGroup("consumer", 1, "range", "me", (member,))

    async def scenario(caller: Caller) -> None:
        groups = caller.broker.groups
        await groups.ensure_topic()
        await groups.wait_until_loaded()
        coordinator = groups.find("g").machine
        for number in range(count):
            coordinator.load(caller.broker.clock.monotonic() - 60, f"g{number}", stored)

        def with_members() -> int:
            described = [coordinator.describe(f"g{number}") for number in range(count)]
            return sum(bool(each and each.members) for each in described)

        groups.runtime._tick()
        assert with_members() == count - EVENTS_PER_TICK
        while with_members():
            before = with_members()
            await asyncio.sleep(0)
            assert before - with_members() <= EVENTS_PER_TICK

    run_with_broker(tmp_path, scenario, offsets_topic_num_partitions=1)
