"""Commits that repeat an earlier one are stored and answered as if each had been carried out in full."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.commit_templates import (
    PARTITIONS_MAX,
    TEXT_CHARACTERS_MAX,
    CommitTemplate,
)
from barnabas.errors import ErrorCode
from barnabas.groups.requests import JoinRequest, LeavingMember, SyncRequest
from barnabas.net.server_connection import FrameReply
from barnabas.protocol.codec import decode_response, request_frame
from barnabas.protocol.declare import message_of
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.support.fake_link import FakeLink
from tests.support.in_process_broker import Caller, run_with_broker

A_JOIN = JoinRequest(
    session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer", protocols=(("range", b""),)
)
Places = dict[str, list[int]]
CLICKS: Places = {"clicks": [0]}


class Committer:
    """A connection on which one member commits."""

    def __init__(self, caller: Caller, version: int = 9, group_id: str = "g", **member: Any) -> None:
        self.caller = caller
        self.version = version
        self.group_id = group_id
        self.member = member
        self.requests = caller.broker.requests.new_handler(FakeLink())
        self.correlation_id = 0

    def frame(self, offset: int, places: Places, metadata: str) -> bytearray:
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                topic_id=self.caller.id_of(name),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offset + number, committed_metadata=metadata
                    )
                    for number in numbers
                ],
            )
            for name, numbers in places.items()
        ]
        request = OffsetCommitRequest(group_id=self.group_id, topics=topics, **self.member)
        self.correlation_id += 1
        frame = b"".join(request_frame(request, self.version, self.correlation_id, "me"))  # type: ignore[arg-type]
        return bytearray(frame)[4:]

    def begin(self, offset: int, places: Places = CLICKS, metadata: str = "") -> FrameReply:
        return self.requests.carry_out([self.frame(offset, places, metadata)])

    async def commit(self, offset: int, places: Places = CLICKS, metadata: str = "") -> set[int]:
        """Commit; return the error codes of the answer."""
        return await self.errors_of(self.begin(offset, places, metadata))

    async def errors_of(self, reply: FrameReply) -> set[int]:
        answer = reply.answer + (await reply.later if reply.later is not None else [])
        frame = b"".join(answer)  # type: ignore[arg-type]
        assert int.from_bytes(frame[:4]) == len(frame) - 4
        assert int.from_bytes(frame[4:8]) == self.correlation_id
        response = decode_response(OffsetCommitResponse, self.version, frame[4:])
        return {each.error_code for topic in response.topics for each in topic.partitions}

    @property
    def learns(self) -> bool:
        """Whether the next commit that repeats the last one is recognised."""
        return self.template is not None

    @property
    def was_repeated(self) -> bool:
        return self.template is not None and self.template.was_repeated

    @property
    def template(self) -> CommitTemplate | None:
        """The commit that the connection has learnt."""
        template = self.requests.state.templates.frame
        assert template is None or isinstance(template, CommitTemplate)
        return template


def stored(caller: Caller, group_id: str = "g") -> dict[tuple[str, int], int]:
    offsets = caller.broker.offsets.committed(group_id)
    return {tuple(where): found.offset for where in offsets if (found := offsets.get(where))}  # type: ignore[misc]


def run(
    folder: Path, scenario: Callable[[Caller], Coroutine[Any, Any, None]], partitions: int = 2, **settings: Any
) -> None:
    async def prepared(caller: Caller) -> None:
        await caller.broker.groups.ensure_topic()
        await caller.broker.groups.wait_until_loaded()
        await scenario(caller)

    run_with_broker(folder, prepared, offsets_topic_num_partitions=partitions, **settings)


@pytest.mark.parametrize("version", message_of(OffsetCommitRequest).versions)
def test_repeated_commits_are_stored_and_found_by_the_next_broker(tmp_path: Path, version: int) -> None:
    places: Places = {"clicks": [2, 0], "views": [1]}

    async def scenario(caller: Caller) -> None:
        committer = Committer(caller, version)
        for offset in (5, 6, 7, 2**62):
            assert await committer.commit(offset, places, "note") == {ErrorCode.NONE}
            expected = {("clicks", 2): offset + 2, ("clicks", 0): offset, ("views", 1): offset + 1}
            assert stored(caller) == expected
        assert committer.was_repeated

    async def again(caller: Caller) -> None:
        assert stored(caller) == {("clicks", 2): 2**62 + 2, ("clicks", 0): 2**62, ("views", 1): 2**62 + 1}

    run(tmp_path, scenario)
    run(tmp_path, again)


def test_a_member_of_an_earlier_generation_is_refused_as_before(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        groups = caller.broker.groups
        joined = await groups.join("g", A_JOIN)
        await groups.sync(
            "g", SyncRequest(member_id=joined.member_id, generation=1, assignments={joined.member_id: b""})
        )
        committer = Committer(caller, member_id=joined.member_id, generation_id_or_member_epoch=1)
        for offset in (1, 2):
            assert await committer.commit(offset) == {ErrorCode.NONE}
        assert committer.was_repeated
        groups.leave("g", [LeavingMember(joined.member_id)])
        assert await committer.commit(3) == {ErrorCode.UNKNOWN_MEMBER_ID}
        assert stored(caller) == {("clicks", 0): 2}

    run(tmp_path, scenario)


def test_a_topic_that_is_deleted_is_not_committed_for(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        committer = Committer(caller)
        for offset in (1, 2):
            assert await committer.commit(offset) == {ErrorCode.NONE}
        await caller.broker.topic_admin.delete("clicks")
        await caller.broker.topic_admin.create("clicks", 3, {})
        assert stored(caller) == {}
        assert await committer.commit(4) == {ErrorCode.NONE}
        assert stored(caller) == {("clicks", 0): 4}
        offsets = caller.broker.groups.find("g").machine.offsets.of("g")
        assert {committed.topic_id for committed in offsets.values()} == {caller.id_of("clicks")}

    run(tmp_path, scenario)


def test_metadata_is_refused_from_the_moment_on_at_which_it_is_too_long(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        committer = Committer(caller)
        for offset in (1, 2):
            assert await committer.commit(offset, metadata="long") == {ErrorCode.NONE}
        settings = caller.broker.settings
        settings.config = replace(settings.config, offset_metadata_max_bytes=3)
        assert await committer.commit(3, metadata="long") == {ErrorCode.OFFSET_METADATA_TOO_LARGE}
        assert stored(caller) == {("clicks", 0): 2}

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("metadata", "size_max", "is_taken"),
    [
        ("e" * 8, 8, True),
        ("\u20ac" * 8, 8, True),  # three bytes each
        ("\u20ac" * 9, 8, False),
        ("\U0001f4be" * 4, 8, True),  # two UTF-16 units each
        ("\U0001f4be" * 4 + "e", 8, False),
        ("", 0, True),
        ("e", 0, False),
        ("e" * 32_767, 100_000, True),
        ("\u20ac" * 10_923, 100_000, False),  # no string for OffsetFetch 5
    ],
    ids=range(9),
)
def test_metadata_is_measured_as_kafka_does(tmp_path: Path, metadata: str, size_max: int, is_taken: bool) -> None:
    async def scenario(caller: Caller) -> None:
        settings = caller.broker.settings
        settings.config = replace(settings.config, offset_metadata_max_bytes=size_max)
        error = ErrorCode.NONE if is_taken else ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await Committer(caller).commit(1, metadata=metadata) == {error}
        if is_taken:
            wanted = [OffsetFetchRequestTopic(name="clicks", partition_indexes=[0])]
            answer = await caller.call(OffsetFetchRequest(group_id="g", topics=wanted), 5)
            assert answer.topics[0].partitions[0].metadata == metadata

    run(tmp_path, scenario)


def test_a_commit_does_not_overtake_one_that_waits(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        first, second, third = Committer(caller), Committer(caller), Committer(caller)
        assert await first.commit(1) == {ErrorCode.NONE}
        assert first.learns
        await asyncio.sleep(0)  # the round ends
        assert second.begin(2).later is None
        waiting = third.begin(3)  # the second of a round waits for the next
        assert waiting.later is not None
        last = first.begin(4)
        assert last.later is not None
        assert stored(caller) == {("clicks", 0): 2}
        assert await first.errors_of(last) == {ErrorCode.NONE}
        assert await third.errors_of(waiting) == {ErrorCode.NONE}
        assert stored(caller) == {("clicks", 0): 4}
        assert await first.errors_of(first.begin(5)) == {ErrorCode.NONE}
        assert first.was_repeated

    run(tmp_path, scenario, partitions=1)


def test_where_the_log_is_flushed_before_the_answer_the_commit_waits_for_that(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        committer = Committer(caller)
        assert await committer.commit(1) == {ErrorCode.NONE}
        await caller.broker.topic_admin.alter("__consumer_offsets", lambda _: {"flush.messages": "1"})
        reply = committer.begin(2)
        assert reply.later is not None
        assert await committer.errors_of(reply) == {ErrorCode.NONE}
        assert stored(caller) == {("clicks", 0): 2}

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("places", "metadata"),
    [
        ({"clicks": list(range(PARTITIONS_MAX + 1))}, ""),
        ({"clicks": [0, 0]}, ""),
        ({"clicks": [0]}, "m" * TEXT_CHARACTERS_MAX),
        ({"clicks": []}, ""),
        ({}, ""),
        ({"clicks": [99]}, ""),
    ],
)
def test_a_commit_that_is_not_usual_is_not_remembered(tmp_path: Path, places: Places, metadata: str) -> None:
    async def scenario(caller: Caller) -> None:
        await caller.broker.topic_admin.grow("clicks", PARTITIONS_MAX + 1)
        committer = Committer(caller)
        for offset in (1, 2):
            await committer.commit(offset, places, metadata)
        assert not committer.learns

    run(tmp_path, scenario)


def test_a_connection_whose_commits_never_repeat_learns_ever_more_seldom(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        committer = Committer(caller)
        learnt = []
        for number in range(64):
            committer.group_id = f"group-{number}"
            assert await committer.commit(1) == {ErrorCode.NONE}
            if committer.template not in learnt:
                learnt.append(committer.template)
        assert len(learnt) == 6
        for offset in (2, 3):
            committer.group_id = "group-62"
            while not committer.was_repeated:
                assert await committer.commit(offset) == {ErrorCode.NONE}
        committer.group_id = "other"
        for offset in (1, 2):
            assert await committer.commit(offset) == {ErrorCode.NONE}
        assert committer.was_repeated

    run(tmp_path, scenario)


def test_commits_of_many_connections_at_once_are_all_stored(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        committers = [Committer(caller, group_id=f"group-{number}") for number in range(20)]
        for offset in range(4):
            found = await asyncio.gather(*(committer.commit(offset) for committer in committers))
            assert all(errors == {ErrorCode.NONE} for errors in found)
        assert all(stored(caller, each.group_id) == {("clicks", 0): 3} for each in committers)
        assert all(each.was_repeated for each in committers)

    run(tmp_path, scenario)
