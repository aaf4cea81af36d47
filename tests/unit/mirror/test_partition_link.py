"""When a partition that cannot go on is told."""

from __future__ import annotations

import pytest

from barnabas.groups.arrival_times import ArrivalTimes
from barnabas.mirror.audit_account import PartitionAuditAccount, TopicAuditAccount
from barnabas.mirror.offset_map import OffsetMap
from barnabas.mirror.partition_copy import PartitionCopy
from barnabas.mirror.partition_link import REPORTED_TRIES, PartitionLink, waiting_reason
from barnabas.model import TopicPartition


def link(partition: int) -> PartitionLink:
    source = TopicPartition("clicks", partition)
    return PartitionLink(source, source, b"id", PartitionCopy(source, 1))


def test_partitions_that_fail_again_and_again_are_told_and_those_that_fail_once_are_not() -> None:
    links = [link(2), link(1), link(0)]
    links[2].reset_after("target: NOT_LEADER_OR_FOLLOWER")
    assert waiting_reason(links) is None
    for each in links[:2]:
        for _ in range(REPORTED_TRIES):
            each.reset_after("target: NOT_ENOUGH_REPLICAS")
    assert waiting_reason(links) == "clicks-1 and others: target: NOT_ENOUGH_REPLICAS"
    links[1].stopped = "somebody else writes there"
    assert waiting_reason(links) == "clicks-2: target: NOT_ENOUGH_REPLICAS"
    links[0].tries, links[0].trouble = 0, None
    assert waiting_reason(links) is None


def test_how_far_an_earlier_mirror_has_told_stays_in_the_ledger_until_the_account_goes_on_there() -> None:
    each = link(0)
    each.copy.offsets, each.reported_to = OffsetMap(100, 0), 40
    assert each.mark is not None
    assert each.mark.reported_to == 40
    each.copy.account = PartitionAuditAccount(TopicAuditAccount("clicks", "", "clicks", "", 1, "a mirror"), 0)
    assert each.mark.reported_to == 40
    each.copy.account.begin(40)
    each.copy.account.reported_to = 60
    assert each.mark.reported_to == 60


def test_lag_in_seconds_is_the_age_of_the_first_record_that_is_not_mirrored() -> None:
    each = link(0)
    assert each.lag_s(0.0) is None
    each.copy.place(OffsetMap(10, 0), None, 0.0)
    each.note_source_end(10, 100.0)
    assert each.lag_s(105.0) == 0
    each.note_source_end(10, 110.0)
    each.note_source_end(20, 120.0)
    assert each.lag_s(150.0) == 40
    each.diverged = "the source has another record"
    assert each.lag_s(150.0) is None


def test_answers_of_one_moment_are_one_look_at_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(ArrivalTimes, "note", lambda _self, _now_s, end: looks.append(end))
    each = link(0)
    for end in range(1, 1001):
        each.note_source_end(end, end / 100)
    assert each.source_end == 1000
    assert len(looks) == 10


def test_lag_is_not_known_while_the_logs_differ_or_were_not_looked_at() -> None:
    each = link(0)
    each.copy.place(OffsetMap(7, 0), None, 0.0)
    each.note_source_end(7, 0.0)
    assert (each.lag, each.is_idle) == (0, True)
    each.recheck()
    assert (each.lag, each.is_idle) == (None, False)
    each.copy.place(OffsetMap(7, 0), None, 0.0)
    each.diverged = "the source has another record"
    assert each.lag is None
    assert each.mark is not None
    assert each.mark.diverged == "the source has another record"
