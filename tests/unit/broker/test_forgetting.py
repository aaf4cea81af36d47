"""Offsets that are forgotten while others commit: no commit that was acknowledged goes with them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.offset_store import FORGOTTEN_AT_ONCE
from barnabas.errors import BarnabasError, ErrorCode, StorageError
from barnabas.groups.records import Committed, OffsetRecord
from barnabas.groups.requests import JoinRequest, LeavingMember, SyncRequest
from barnabas.model import OffsetAndMetadata, TopicPartition
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.storage.log import Log
from tests.support.in_process_broker import Caller, run_with_broker
from tests.support.stored_offsets import store

CLICKS = TopicPartition("clicks", 0)
HOUR_MS = 3_600_000
GROUPS = [f"g{number}" for number in range(50)]
GONE = b"a topic once was"
A_JOIN = JoinRequest(
    session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer", protocols=(("range", b""),)
)


@pytest.fixture(autouse=True)
def _others_have_their_turn_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.pipeline.scheduler.SLICE_S", 0.0)


def run(folder: Path, scenario: Any, **settings: Any) -> None:
    async def prepared(caller: Caller) -> None:
        await caller.broker.groups.ensure_topic()
        await caller.broker.groups.wait_until_loaded()
        await scenario(caller)

    run_with_broker(folder, prepared, offsets_topic_num_partitions=1, **settings)


async def write(caller: Caller, *changes: OffsetRecord) -> None:
    await store(caller.broker.groups.find("g"), *changes)


def told(caller: Caller, group_id: str, where: TopicPartition = CLICKS) -> int | None:
    found = caller.broker.offsets.committed(group_id).get(where)
    return found.offset if found else None


async def commit_meanwhile(caller: Caller, forgetting: asyncio.Task[Any]) -> None:
    """Commit in each group while others' offsets are being forgotten."""
    for group_id in GROUPS:
        await asyncio.sleep(0)
        assert await caller.broker.offsets.commit(group_id, {CLICKS: OffsetAndMetadata(9)}) == set()
    await forgetting
    assert {group_id: told(caller, group_id) for group_id in GROUPS} == dict.fromkeys(GROUPS, 9)


def test_commit_is_not_forgotten_that_comes_while_old_offsets_are(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        old = Committed(1, committed_ms=caller.broker.clock.time_ms() - HOUR_MS)
        await write(caller, *(OffsetRecord(group_id, CLICKS, old) for group_id in reversed(GROUPS)))
        await commit_meanwhile(caller, asyncio.create_task(caller.broker.offsets.expire(HOUR_MS)))

    run(tmp_path, scenario)


def test_commit_is_not_forgotten_that_comes_while_those_of_a_deleted_topic_are(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        of_gone = Committed(1, topic_id=GONE)
        await write(caller, *(OffsetRecord(group_id, CLICKS, of_gone) for group_id in reversed(GROUPS)))
        await commit_meanwhile(caller, asyncio.create_task(caller.broker.offsets.delete_topics({GONE}, set())))

    run(tmp_path, scenario)


def test_commit_that_is_on_its_way_to_the_disk_is_not_forgotten(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        offsets = caller.broker.offsets
        old = Committed(1, committed_ms=caller.broker.clock.time_ms() - HOUR_MS, topic_id=GONE)
        await write(caller, OffsetRecord("g", CLICKS, old))
        commit = offsets.commit("g", {CLICKS: OffsetAndMetadata(9)})
        assert not commit.done(), "it waits for the flush"
        await asyncio.gather(offsets.expire(HOUR_MS), offsets.delete_topics({GONE}, set()))
        await commit
        assert told(caller, "g") == 9

    run(tmp_path, scenario, log_flush_interval_messages=1)


def test_commit_for_the_new_topic_is_not_forgotten_with_one_for_the_old(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        topics, offsets = caller.broker.topics, caller.broker.offsets
        assert await offsets.commit("other", {CLICKS: OffsetAndMetadata(1)}) == set()
        for_old = offsets.commit("g", {CLICKS: OffsetAndMetadata(5)})
        assert not for_old.done()
        old = topics.get("clicks")
        assert old
        del topics._by_id[old.id]  # as its deletion begins
        topics._keep(replace(old, id=b"the one made now"))
        for_new = offsets.commit("g", {CLICKS: OffsetAndMetadata(9)})
        assert await for_old == {CLICKS}
        assert await for_new == set()
        assert await offsets.commit("g", {TopicPartition("views", 0): OffsetAndMetadata(1)}) == set()
        assert told(caller, "g") == 9

    run(tmp_path, scenario)


def test_one_group_with_many_offsets_is_forgotten_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3 * FORGOTTEN_AT_ONCE + 1

    async def scenario(caller: Caller) -> None:
        shard = caller.broker.groups.find("g")
        old = Committed(1, committed_ms=caller.broker.clock.time_ms() - HOUR_MS)
        await write(caller, *(OffsetRecord("g", TopicPartition("clicks", number), old) for number in range(count)))
        sizes: list[int] = []
        original = shard.log.write
        monkeypatch.setattr(shard.log, "write", lambda append: (sizes.append(len(append.records)), original(append)))
        assert await caller.broker.offsets.expire(HOUR_MS) == count
        assert sum(sizes) == count
        assert max(sizes) <= FORGOTTEN_AT_ONCE
        assert caller.broker.offsets.group_ids() == []

    run(tmp_path, scenario)


def test_commit_is_not_forgotten_that_comes_while_its_group_is_deleted(tmp_path: Path) -> None:
    count = 3 * FORGOTTEN_AT_ONCE
    last = TopicPartition("clicks", 2)

    async def scenario(caller: Caller) -> None:
        many = [OffsetRecord("g", TopicPartition("gone", number), Committed(1)) for number in range(count)]
        await write(caller, *many, OffsetRecord("g", last, Committed(1)))
        deletion = asyncio.create_task(caller.broker.offsets.delete_group("g"))
        await asyncio.sleep(0)
        assert await caller.broker.offsets.commit("g", {last: OffsetAndMetadata(9)}) == set()
        assert not deletion.done()
        assert await deletion
        assert list(caller.broker.offsets.committed("g")) == [last]
        assert told(caller, "g", last) == 9

    run(tmp_path, scenario)


def test_group_whose_deletion_the_disk_refuses_is_not_said_to_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(caller: Caller) -> None:
        groups = caller.broker.groups
        joined = await groups.join("g", A_JOIN)
        sync = SyncRequest(member_id=joined.member_id, generation=1, assignments={joined.member_id: b""})
        await groups.sync("g", sync)
        groups.leave("g", [LeavingMember(joined.member_id)])

        def refuse(*_arguments: object) -> list[BarnabasError]:
            raise StorageError("no space left")

        with monkeypatch.context() as patch:
            patch.setattr(Log, "append_until_roll", refuse)
            response = await caller.call(DeleteGroupsRequest(groups_names=["g"]))
        assert [each.error_code for each in response.results] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    run(tmp_path, scenario)
