"""Committed offsets: stored together, told, kept over a restart, and forgotten with their group or topic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.errors import ApiError, BarnabasError, ErrorCode, StorageError
from barnabas.groups.records import Committed, OffsetRecord
from barnabas.groups.requests import JoinRequest, LeavingMember, SyncRequest
from barnabas.model import OffsetAndMetadata, TopicPartition
from barnabas.storage.log import Log
from tests.support.in_process_broker import Caller, run_with_broker
from tests.support.stored_offsets import store as write_past

FIRST, SECOND, VIEWS = TopicPartition("clicks", 0), TopicPartition("clicks", 1), TopicPartition("views", 0)
HOUR_MS = 3_600_000
PARTITIONS = 2
A_JOIN = JoinRequest(
    session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer", protocols=(("range", b""),)
)


def offset(number: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(number, f"at {number}")


def told(caller: Caller, group_id: str) -> dict[TopicPartition, int]:
    committed = caller.broker.offsets.committed(group_id)
    return {where: found.offset for where in committed if (found := committed.get(where))}


def run(folder: Path, scenario: Any, **settings: Any) -> None:
    async def prepared(caller: Caller) -> None:
        await caller.broker.groups.ensure_topic()
        await caller.broker.groups.wait_until_loaded()
        await scenario(caller)

    run_with_broker(folder, prepared, offsets_topic_num_partitions=PARTITIONS, **settings)


def records(caller: Caller) -> int:
    replicas = caller.broker.topics.replicas.of_topic("__consumer_offsets")
    assert replicas
    return sum(replica.log.log_end_offset for replica in replicas.values())


def writes(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the requests of each write from now on."""
    counted: list[int] = []
    original = Log.append_until_roll

    def append_until_roll(log: Log, requests: Any, leader_epoch: int) -> Any:
        counted.append(len(requests))
        return original(log, requests, leader_epoch)

    monkeypatch.setattr(Log, "append_until_roll", append_until_roll)
    return counted


def test_what_is_committed_is_told_with_its_metadata_also_after_a_restart(tmp_path: Path) -> None:
    async def commit(caller: Caller) -> None:
        store = caller.broker.offsets
        await store.commit("g", {FIRST: offset(5), SECOND: offset(7)})
        await store.commit("g", {FIRST: OffsetAndMetadata(6, "by test", 3)})
        await check(caller)

    async def check(caller: Caller) -> None:
        committed = caller.broker.offsets.committed("g")
        assert sorted(committed) == [FIRST, SECOND]
        assert committed.get(FIRST) == OffsetAndMetadata(6, "by test", 3)
        assert committed.get(SECOND) == offset(7)
        assert told(caller, "other") == {}
        assert caller.broker.offsets.group_ids() == ["g"]

    run(tmp_path, commit)
    run(tmp_path, check)


def test_groups_whose_log_cannot_be_opened_are_refused_and_not_without_offsets(tmp_path: Path) -> None:
    async def commit(caller: Caller) -> None:
        await caller.broker.offsets.commit("g", {FIRST: offset(5)})

    async def check(caller: Caller) -> None:
        await caller.broker.groups.wait_until_loaded()
        for group_id in ("g", "other", "third", "fourth"):
            with pytest.raises(ApiError) as caught:
                caller.broker.offsets.committed(group_id)
            codes.append(caught.value.code)

    codes: list[ErrorCode] = []
    run(tmp_path, commit)
    for number in range(PARTITIONS):
        segment = next((tmp_path / f"__consumer_offsets-{number}").glob("*.log"))
        segment.unlink()
        segment.mkdir()
    for written in (*tmp_path.glob("*-checkpoint"), tmp_path / ".kafka_cleanshutdown"):
        written.unlink()  # as if the broker had been killed before it wrote the first ones
    with pytest.raises(StorageError, match="not closed cleanly"):
        run_with_broker(tmp_path, check, offsets_topic_num_partitions=PARTITIONS)
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 4


def test_commits_that_come_together_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(caller: Caller) -> None:
        counted = writes(caller, monkeypatch)
        store = caller.broker.offsets
        await asyncio.gather(*(store.commit(f"g{number}", {FIRST: offset(number)}) for number in range(100)))
        assert len(counted) == 2 * PARTITIONS, "the first of each partition, and all others"
        assert records(caller) == 100
        assert told(caller, "g77") == {FIRST: 77}

    run(tmp_path, scenario)


def test_commit_of_many_partitions_is_split_into_batches(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        await caller.broker.topic_admin.create("wide", 400, {})
        long = {TopicPartition("wide", number): OffsetAndMetadata(1, "m" * 4_000) for number in range(400)}
        assert await caller.broker.offsets.commit("g", long) == set()
        assert len(told(caller, "g")) == 400

    run(tmp_path, scenario)


def test_record_that_is_too_large_is_refused_and_the_others_are_stored(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        store = caller.broker.offsets
        large = store.commit("g", {FIRST: OffsetAndMetadata(1, "m" * 1_100_000)})
        small = store.commit("g", {SECOND: offset(2)})
        with pytest.raises(ApiError) as caught:
            await large
        assert caught.value.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        await small
        assert told(caller, "g") == {SECOND: 2}

    run(tmp_path, scenario)


def test_commit_that_the_disk_refuses_is_told_and_the_next_one_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(caller: Caller) -> None:
        store = caller.broker.offsets
        await store.commit("g", {FIRST: offset(1)})
        for failure in (StorageError("no space left"), ZeroDivisionError("nobody foresaw this")):
            with monkeypatch.context() as patch:

                def refuse(*_arguments: object, failure: Exception = failure) -> list[BarnabasError]:
                    raise failure

                patch.setattr(Log, "append_until_roll", refuse)
                with pytest.raises(ApiError) as caught:
                    await store.commit("g", {FIRST: offset(2)})
                assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert told(caller, "g") == {FIRST: 1}
        await store.commit("g", {FIRST: offset(3)})
        assert told(caller, "g") == {FIRST: 3}

    run(tmp_path, scenario)


def test_commit_waits_for_the_flush_where_offsets_are_flushed(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        store = caller.broker.offsets
        await asyncio.gather(*(store.commit("g", {FIRST: offset(number)}) for number in range(20)))
        shard = caller.broker.groups.find("g")
        assert shard.replica.log.recovery_point == 20

    run(tmp_path, scenario, log_flush_interval_messages=1)


# --- topics that are deleted ---


def test_topic_that_was_made_anew_has_no_old_offsets(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        topic_admin, store = caller.broker.topic_admin, caller.broker.offsets
        await store.commit("g", {FIRST: offset(5), VIEWS: offset(7)})
        await topic_admin.delete("clicks")
        assert told(caller, "g") == {VIEWS: 7}
        await topic_admin.create("clicks", 3, {})
        assert told(caller, "g") == {VIEWS: 7}
        assert sorted(caller.broker.groups.find("g").machine.offsets.of("g")) == [VIEWS]

    async def check(caller: Caller) -> None:
        assert told(caller, "g") == {VIEWS: 7}

    run(tmp_path, scenario)
    run(tmp_path, check)


def test_commit_that_comes_too_late_is_told_so_and_is_not_there_for_a_new_topic(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        topics, store = caller.broker.topics, caller.broker.offsets
        await store.commit("g", {FIRST: offset(5)})
        commit = store.commit("g", {FIRST: offset(5), VIEWS: offset(7)})
        assert not commit.done()
        topic = topics.get("clicks")
        assert topic
        del topics._by_name["clicks"], topics._by_id[topic.id]  # as its deletion begins
        assert await commit == {FIRST}
        topics._keep(topic)
        assert await store.commit("g", {VIEWS: offset(8)}) == set()
        assert told(caller, "g") == {VIEWS: 8}

    run(tmp_path, scenario)


def test_offsets_without_an_id_go_with_the_name_of_their_topic(tmp_path: Path) -> None:
    """As Kafka's brokers before 4.1 write them."""

    async def scenario(caller: Caller) -> None:
        shard = caller.broker.groups.find("g")
        await write_past(shard, OffsetRecord("g", FIRST, Committed(5)), OffsetRecord("g", VIEWS, Committed(7)))
        assert told(caller, "g") == {FIRST: 5, VIEWS: 7}
        await caller.broker.topic_admin.delete("clicks")
        assert told(caller, "g") == {VIEWS: 7}

    run(tmp_path, scenario)


# --- groups that are deleted, and old offsets ---


def test_deleted_offsets_and_groups_stay_so_after_a_restart(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        store = caller.broker.offsets
        await store.commit("g", {FIRST: offset(5), SECOND: offset(7)})
        await store.commit("gone", {FIRST: offset(5)})
        await store.delete("g", [SECOND, VIEWS])
        assert await store.delete_group("gone")
        assert not await store.delete_group("gone")
        await check(caller)

    async def check(caller: Caller) -> None:
        assert told(caller, "g") == {FIRST: 5}
        assert caller.broker.offsets.group_ids() == ["g"]

    run(tmp_path, scenario)
    run(tmp_path, check)


def test_old_offsets_are_forgotten_and_their_group_with_them(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        broker = caller.broker
        shard = broker.groups.find("g")
        now_ms = broker.clock.time_ms()
        old, young = now_ms - HOUR_MS, now_ms - 1_000
        await write_past(
            broker.groups.find("old"),
            OffsetRecord("old", FIRST, Committed(1, committed_ms=old)),
            OffsetRecord("old", SECOND, Committed(1, committed_ms=young)),
        )
        await write_past(broker.groups.find("older"), OffsetRecord("older", FIRST, Committed(1, committed_ms=old)))
        joined = await broker.groups.join("g", A_JOIN)
        sync = SyncRequest(member_id=joined.member_id, generation=1, assignments={joined.member_id: b""})
        await broker.groups.sync("g", sync)
        await write_past(shard, OffsetRecord("g", FIRST, Committed(1, committed_ms=old)))
        assert await broker.offsets.expire(HOUR_MS) == 2
        assert sorted(broker.offsets.group_ids()) == ["g", "old"]
        assert sorted(broker.offsets.committed("old")) == [SECOND]
        broker.groups.leave("g", [LeavingMember(joined.member_id)])
        assert await broker.offsets.expire(HOUR_MS) == 0, "it has had no members for a moment only"
        assert await broker.offsets.expire(0) == 2
        assert broker.offsets.group_ids() == broker.groups.group_ids() == []

    async def check(caller: Caller) -> None:
        assert caller.broker.offsets.group_ids() == caller.broker.groups.group_ids() == []

    run(tmp_path, scenario)
    run(tmp_path, check)


def test_partition_that_is_not_loaded_keeps_no_other_from_being_looked_through(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        broker = caller.broker
        names = {broker.groups.find(name).replica.topic_partition: name for name in ("a", "b", "c", "d")}
        assert len(names) == PARTITIONS
        for name in names.values():
            old = Committed(1, committed_ms=broker.clock.time_ms() - HOUR_MS)
            await write_past(broker.groups.find(name), OffsetRecord(name, FIRST, old))
        first, second = names.values()
        broker.groups.find(first).error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await broker.offsets.expire(HOUR_MS) == 1
        assert told(caller, second) == {}

    run(tmp_path, scenario)


@pytest.fixture(autouse=True)
def _no_warnings_of_tasks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert not [each for each in caplog.records if "never retrieved" in each.getMessage()]
