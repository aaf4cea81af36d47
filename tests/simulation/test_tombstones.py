"""Who may keep what a tombstone deleted: who was never told of it, since its time was over, and nobody else."""

from __future__ import annotations

import pytest

from barnabas.model import TopicPartition
from barnabas.records.compaction import Filtering, OffsetMap, filter_batches
from tests.simulation.tombstones import Rewritten, Tombstones
from tests.support.compaction_steps import SECRET, Keyed, keyed_batch

PLACE = TopicPartition("states", 0)
RETENTION_MS = 1_000
KEY, OTHER = b"key", b"other"
LEADER, FOLLOWER = 1, 2


class Logs:
    """Logs of brokers, each as its batches, whose cleaners are looked at; each record is a batch of its own."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.tombstones = Tombstones(PLACE, RETENTION_MS, self.said.append)
        self.logs = {LEADER: b"", FOLLOWER: b""}
        self.end = 0

    def append(self, key: bytes, value: bytes | None, *numbers: int) -> int:
        """Append a record to some logs; return its offset."""
        batch = keyed_batch([Keyed(key, value, 0)])
        batch[:8] = self.end.to_bytes(8, "big")
        for number in numbers:
            self.logs[number] += bytes(batch)
        self.end += 1
        return self.end - 1

    def clean(self, number: int, now_ms: int, retention_ms: int = RETENTION_MS) -> None:
        """Compact a log as far as it goes."""
        before = self.logs[number]
        keys = OffsetMap(1_000, 0, SECRET)
        keys.add(before, 0)
        after = b"".join(filter_batches(before, keys, Filtering(now_ms, retention_ms, {}, 1_000)).chunks)
        self.logs[number] = after
        self.note(number, before, after, now_ms, keys)

    def note(self, number: int, before: bytes, after: bytes, now_ms: int, keys: OffsetMap) -> None:
        def is_superseded(key: bytes, offset: int) -> bool:
            latest = keys.latest(key)
            return latest is not None and latest > offset

        self.tombstones.note_rewritten(number, Rewritten(before, after, now_ms, is_superseded))

    def may_keep(self, number: int, offset: int) -> bool:
        """Whether a broker may have an older record of the key than the tombstone at an offset."""
        return bool(self.tombstones.missed(number, self.tombstones.gone(KEY, offset), self.logs[number]))


def test_who_was_away_until_a_tombstone_had_gone_may_keep_what_it_deleted() -> None:
    logs = Logs()
    logs.append(KEY, b"value", LEADER, FOLLOWER)
    offset = logs.append(KEY, None, LEADER)
    logs.append(OTHER, b"value", LEADER)
    logs.clean(LEADER, 0)
    assert not logs.may_keep(FOLLOWER, offset)  # it is told of it when it comes back
    logs.clean(LEADER, RETENTION_MS)
    assert logs.may_keep(FOLLOWER, offset)
    assert not logs.may_keep(LEADER, offset)
    assert not logs.tombstones.gone(OTHER, 0)
    assert not logs.said


def test_who_had_a_tombstone_may_not_keep_what_it_deleted() -> None:
    logs = Logs()
    logs.append(KEY, b"value", LEADER, FOLLOWER)
    offset = logs.append(KEY, None, LEADER, FOLLOWER)
    for number in (LEADER, FOLLOWER):
        for now_ms in (0, RETENTION_MS):
            logs.clean(number, now_ms)
            assert not logs.may_keep(FOLLOWER, offset)
    assert logs.logs[FOLLOWER] == b""
    assert not logs.said


def test_who_had_a_tombstone_and_lost_it_may_keep_what_it_deleted() -> None:
    logs = Logs()
    logs.append(KEY, b"value", LEADER, FOLLOWER)
    offset = logs.append(KEY, None, LEADER, FOLLOWER)
    for number in (FOLLOWER, LEADER):
        for now_ms in (0, RETENTION_MS):
            logs.clean(number, now_ms)
    logs.tombstones.note_end(FOLLOWER, offset + 1)
    assert not logs.may_keep(FOLLOWER, offset)
    logs.tombstones.note_end(FOLLOWER, offset)  # power failed before it was on the disk
    assert logs.may_keep(FOLLOWER, offset)


def test_who_lost_a_tombstone_and_was_told_again_may_not_keep_what_it_deleted() -> None:
    logs = Logs()
    offset = logs.append(KEY, None, LEADER, FOLLOWER)
    for number in (FOLLOWER, LEADER):
        logs.clean(number, 0)
    told = logs.logs[FOLLOWER]
    for number in (FOLLOWER, LEADER):
        logs.clean(number, RETENTION_MS)
    logs.tombstones.note_end(FOLLOWER, offset)
    logs.logs[FOLLOWER] = told
    logs.clean(FOLLOWER, RETENTION_MS)  # with what it deletes, and never before
    assert not logs.may_keep(FOLLOWER, offset)
    assert not logs.said


def test_a_tombstone_that_a_later_record_took_the_place_of_has_not_gone() -> None:
    logs = Logs()
    offset = logs.append(KEY, None, LEADER)
    logs.append(KEY, b"value", LEADER)
    logs.clean(LEADER, 0)
    assert not logs.tombstones.gone(KEY, offset)
    assert not logs.may_keep(FOLLOWER, offset)
    assert not logs.said


def test_what_went_before_a_reading_began_is_none_of_what_went_since() -> None:
    logs = Logs()
    offset = logs.append(KEY, None, LEADER)
    logs.clean(LEADER, 0)
    since = logs.tombstones.gone_count
    logs.clean(LEADER, RETENTION_MS)
    assert logs.tombstones.gone(KEY, offset, since=since) == {offset}
    assert not logs.tombstones.gone(KEY, offset, since=logs.tombstones.gone_count)


@pytest.mark.parametrize("now_ms", [0, RETENTION_MS - 1])
def test_a_tombstone_that_goes_before_its_time_is_told(now_ms: int) -> None:
    logs = Logs()
    offset = logs.append(KEY, None, LEADER)
    logs.clean(LEADER, 0)
    logs.note(LEADER, logs.logs[LEADER], b"", now_ms, OffsetMap(1_000, 0, SECRET))
    assert logs.said == [f"{PLACE}: the cleaner of broker {LEADER} took the tombstone at {offset} too early"]


def test_a_tombstone_that_goes_when_it_is_first_compacted_is_told() -> None:
    logs = Logs()
    logs.append(KEY, None, LEADER)
    logs.note(LEADER, logs.logs[LEADER], b"", RETENTION_MS, OffsetMap(1_000, 0, SECRET))
    assert len(logs.said) == 1


def test_a_tombstone_that_is_to_go_before_its_time_is_told() -> None:
    logs = Logs()
    offset = logs.append(KEY, None, LEADER)
    logs.clean(LEADER, 0, RETENTION_MS - 1)
    assert logs.said == [f"{PLACE}: the tombstone at {offset} on broker {LEADER} is to go too early"]
