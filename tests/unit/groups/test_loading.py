"""What a coordinator has after it has applied the records of its partition."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import ApiError, ErrorCode
from barnabas.groups import Committed, GroupConfig, GroupCoordinator, StoredGroup, StoredMember
from barnabas.groups.coordinator import GROUPS_PER_RELEASE, GROUPS_PER_STEP
from barnabas.groups.memory import GroupMemory
from barnabas.groups.offsets import GroupOffsets
from barnabas.groups.records import Change, GroupRecord, OffsetRecord
from barnabas.groups.topic_metadata import TopicSnapshot
from barnabas.model import NO_TIMESTAMP, OffsetAndMetadata, TopicPartition
from barnabas.state_machine import Effects
from tests.support.searches import examples
from tests.support.steps import at_once

FIRST, SECOND = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


class Clicks:
    name = "clicks"
    id = b"0123456789abcdef"
    partition_count = 2

    def partition(self, number: int) -> TopicPartition:
        return (FIRST, SECOND)[number]

    def racks_of(self, _number: int) -> frozenset[str]:
        return frozenset()


CLICKS = Clicks()


class OneTopic:
    def topic(self, name: str) -> TopicSnapshot | None:
        return CLICKS if name == "clicks" else None

    def topic_id(self, name: str) -> bytes | None:
        return CLICKS.id if name == "clicks" else None

    def has_topic_id(self, topic_id: bytes) -> bool:
        return topic_id == CLICKS.id


def loaded(*records: Change, now_ms: int | None = None) -> GroupCoordinator:
    coordinator = GroupCoordinator(GroupConfig(), lambda: "1", None, OneTopic)
    for record in records:
        coordinator.apply(record)
    at_once(coordinator.loaded(100.0, now_ms))
    return coordinator


def test_groups_are_there_until_their_tombstone() -> None:
    stored = StoredGroup("consumer", 3)
    coordinator = loaded(*(GroupRecord(name, stored) for name in "ab"), GroupRecord("a", None))
    assert coordinator.group_ids() == ["b"]
    described = coordinator.describe("b")
    assert described
    assert described.generation == 3


def test_a_group_was_empty_for_as_long_as_its_record_says() -> None:
    record = GroupRecord("a", StoredGroup("consumer", 3, since_ms=1_000))
    assert loaded(record, now_ms=61_000).empty_for_s(110.0, "a") == 70.0
    assert loaded(record, now_ms=None).empty_for_s(110.0, "a") == 10.0


def test_offset_without_a_time_is_as_old_as_the_load() -> None:
    def committed_ms(now_ms: int | None) -> int:
        records = [OffsetRecord("a", FIRST, Committed(5, committed_ms=NO_TIMESTAMP)) for _ in range(2)]
        return (
            loaded(*records, OffsetRecord("a", SECOND, Committed(5)), now_ms=now_ms).offsets.of("a")[FIRST].committed_ms
        )

    assert committed_ms(61_000) == 61_000
    assert committed_ms(None) == NO_TIMESTAMP


def test_loaded_offsets_share_the_objects_of_their_topic() -> None:
    record = OffsetRecord("g", TopicPartition("clicks", 1), Committed(5, topic_id=bytes(bytearray(CLICKS.id))))
    [(where, committed)] = loaded(record).offsets.of("g").items()
    assert where is SECOND
    assert committed.topic_id is CLICKS.id


def test_offsets_of_a_topic_that_was_deleted_meanwhile_are_forgotten_again() -> None:
    coordinator = loaded()
    records: list[Change] = [OffsetRecord("g", FIRST, Committed(5, topic_id=b"the one before"))]
    effects = coordinator.forget("waiter", "g", records)
    coordinator.apply(records[0])
    (reply,), (tombstones,) = coordinator.appended(0.0, effects.appends[0])
    assert reply == ("waiter", {FIRST})
    assert tombstones.records == [OffsetRecord("g", FIRST, None)]
    assert coordinator.is_unsettled("g", FIRST)
    assert coordinator.appended(0.0, tombstones) == Effects()
    assert not coordinator.is_unsettled("g", FIRST)


def test_an_offset_is_unsettled_until_its_last_append_is_settled() -> None:
    coordinator = loaded()
    offsets = {FIRST: OffsetAndMetadata(5)}
    appends = [coordinator.commit(0, number, "g", offsets).appends[0] for number in range(3)]
    coordinator.appended(0.0, appends[0])
    coordinator.failed(0.0, appends[1], ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert coordinator.is_unsettled("g", FIRST)
    assert not coordinator.is_unsettled("other", FIRST)
    coordinator.appended(0.0, appends[2])
    assert not coordinator.is_unsettled("g", FIRST)


def test_only_a_commit_that_is_too_large_has_the_error_of_commits() -> None:
    coordinator = loaded()
    too_large = ApiError(ErrorCode.MESSAGE_TOO_LARGE)
    (commit,) = coordinator.commit(0, "waiter", "g", {FIRST: OffsetAndMetadata(5)}).appends
    (tombstone,) = coordinator.forget("waiter", "g", [OffsetRecord("g", FIRST, None)]).appends
    codes = [coordinator.failed(0.0, each, too_large).replies[0].result.code for each in (commit, tombstone)]
    assert codes == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR]


def test_a_closed_coordinator_frees_its_groups_in_slices_without_a_garbage_collection() -> None:
    count = 2 * GROUPS_PER_RELEASE
    coordinator = loaded(*(GroupRecord(f"g{number}", StoredGroup("consumer", 3)) for number in range(count)))
    group = coordinator._groups["g0"]
    references = sys.getrefcount(group)
    gc.disable()
    try:
        coordinator.close()
        assert coordinator.group_ids() == []
        assert len(list(coordinator.release())) == 4, "the groups, and since when they are empty"
        assert sys.getrefcount(group) == references - 1
        kept = weakref.ref(coordinator)
        del coordinator
        assert kept() is None
    finally:
        gc.enable()


def test_a_coordinator_that_is_closed_while_it_loads_holds_no_memory() -> None:
    member = StoredMember("m", None, "app", "/127.0.0.1", 6_000, 6_000, b"topics", b"")
    memory = GroupMemory()
    coordinator = GroupCoordinator(GroupConfig(), lambda: "1", memory, OneTopic)
    for number in range(3 * GROUPS_PER_STEP):
        coordinator.apply(GroupRecord(f"g{number}", StoredGroup("consumer", 3, "range", "m", (member,))))
    loading = coordinator.loaded(0.0, None)
    for _ in range(2):
        next(loading)
    assert memory.used_bytes > 0
    coordinator.close()
    at_once(loading)
    assert memory.used_bytes == 0
    assert coordinator.group_ids() == []


CHANGES = st.lists(
    st.tuples(st.sampled_from("gh"), st.sampled_from([FIRST, SECOND]), st.none() | st.integers(0, 9)), max_size=30
)


@settings(max_examples=examples(50))
@given(CHANGES)
def test_loading_gives_what_was_applied(changes: Sequence[tuple[str, TopicPartition, int | None]]) -> None:
    applied = GroupOffsets()
    records: list[Change] = []
    for group_id, where, offset in changes:
        committed = None if offset is None else Committed(offset)
        applied.apply(group_id, where, committed)
        records.append(OffsetRecord(group_id, where, committed))
    offsets = loaded(*records).offsets
    assert {name: dict(offsets.of(name)) for name in offsets} == {name: dict(applied.of(name)) for name in applied}
