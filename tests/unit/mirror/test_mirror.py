"""What ends a mirror, what it says in the end, and how long it waits for the audit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import ApiError, BarnabasError, ConfigurationError, DisconnectedError, ErrorCode, TimedOutError
from barnabas.mirror import audit_account, mirror
from barnabas.mirror.audit_account import PartitionAuditAccount, TopicAuditAccount
from barnabas.mirror.mirror import AUDIT_PATIENCE_S, Mirror, MirrorConfig
from barnabas.mirror.offset_map import OffsetMap
from barnabas.mirror.partition_copy import PartitionCopy
from barnabas.mirror.partition_link import REPORTED_TRIES, LeaderTerm, PartitionLink
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder
from barnabas.records.header import stamp

CLICKS = TopicPartition("clicks", 0)
SIDES = ({"bootstrap.servers": "localhost:1"}, {"bootstrap.servers": "localhost:2"})


def test_bug_in_what_looks_after_a_partition_ends_the_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_link: object) -> None:
        raise ZeroDivisionError("a bug")

    async def mirrored() -> None:
        mirror = Mirror(MirrorConfig(*SIDES, topics=("clicks",)), lambda _event: None)
        monkeypatch.setattr(mirror._resume_positions, "watch_link", broken)
        view = SimpleNamespace(name="clicks", topic_id=b"id", partitions=[SimpleNamespace(partition=0)])
        followed: Any = SimpleNamespace(source=view, target=view, is_compacted=False)
        mirror._on_topic(followed)
        async with asyncio.timeout(60):
            await mirror.run_until(asyncio.Event())

    with pytest.raises(ZeroDivisionError):
        asyncio.run(mirrored())


def audited_link() -> PartitionLink:
    copy = PartitionCopy(CLICKS, 5)
    copy.account = PartitionAuditAccount(TopicAuditAccount("clicks", "0a", "clicks", "0b", 5, "a mirror"), 0)
    copy.account.begin(0)
    copy.place(OffsetMap(0, 0), None, 0.0)
    return PartitionLink(CLICKS, CLICKS, b"id", copy)


def bring(link: PartitionLink, first: int, batches: int) -> None:
    """Mirror batches of a record each, as soon as they may be sent, from source offset `first` on."""
    for offset in range(first, first + batches):
        builder = BatchBuilder()
        builder.append(1_000, None, b"")
        data = bytearray(builder.build())
        stamp(data, 0, offset, 0)
        assert link.copy.take(data, offset) <= 1
        while (outgoing := link.copy.next_to_send(0.0)) is not None:
            assert link.copy.acknowledged(outgoing, outgoing.target_offset, 0.0)


def counted_to(link: PartitionLink) -> int | None:
    assert link.copy.account is not None
    return link.copy.account.counted_to


def test_mirror_goes_on_where_the_audit_cannot_be_told_and_counts_later(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    monkeypatch.setattr(mirror, "SYSTEM_CLOCK", clock)
    monkeypatch.setattr(audit_account, "WAITING_MAX", 3)

    async def silent(_accounts: object) -> None:
        raise TimedOutError("nothing could be read")

    async def told(accounts: Iterable[PartitionAuditAccount]) -> None:
        for each in accounts:
            each.topic.read(each.topic.to_be_read, [])

    async def mirrored() -> None:
        made = Mirror(MirrorConfig(*SIDES, topics=("clicks",)), lambda _event: None)
        link = made.links[CLICKS] = audited_link()
        monkeypatch.setattr(made._audit_reporter, "report", silent)
        bring(link, 0, 3)
        for patient in (True, False):
            assert not link.copy.wants_data
            clock.advance(AUDIT_PATIENCE_S / 2 if patient else AUDIT_PATIENCE_S)
            with pytest.raises(TimedOutError):
                await made._report_audit()
        assert link.copy.wants_data
        bring(link, 3, 2)
        assert link.copy.done_to == 5
        assert counted_to(link) == 3
        monkeypatch.setattr(made._audit_reporter, "report", told)
        await made._report_audit()
        assert not link.copy.is_placed, "it is looked at again"
        assert link.attention.is_set()
        assert link.copy.offsets is not None
        link.copy.place(link.copy.offsets, link.copy.origin, 0.0, count_from=counted_to(link))
        bring(link, 3, 3)
        assert counted_to(link) == 6
        assert link.copy.offsets.target_end == 6

    asyncio.run(mirrored())


@pytest.mark.parametrize("is_put_off", [True, False])
def test_partition_is_counted_behind_the_mirror_only_where_the_audit_is_not_put_off(
    monkeypatch: pytest.MonkeyPatch, is_put_off: bool
) -> None:
    async def source_ends(_where: TopicPartition) -> tuple[int, int]:
        return 0, 9

    async def target_ends(_where: TopicPartition) -> tuple[int, int]:
        return 5, 5

    async def term(_where: TopicPartition) -> LeaderTerm:
        return LeaderTerm(1, 0, None)

    async def placed_again() -> None:
        made = Mirror(MirrorConfig(*SIDES, topics=("clicks",)), lambda _event: None)
        monkeypatch.setattr(made._source, "ends", source_ends)
        monkeypatch.setattr(made._target, "ends", target_ends)
        monkeypatch.setattr(made._source, "begin_term", term)
        monkeypatch.setattr(made._target, "begin_term", term)
        link = audited_link()
        assert link.copy.account is not None
        bring(link, 0, 2)
        link.copy.account.topic.is_put_off = True
        bring(link, 2, 3)
        link.copy.account.topic.is_put_off = is_put_off
        link.copy.last_source = None  # the source has no records here that could be compared
        link.reset_after("another leader")
        await made._resume_positions.place(link)
        assert link.copy.position == (5 if is_put_off else 2)

    asyncio.run(placed_again())


def test_what_waits_in_the_end_is_not_told_to_be_well_again() -> None:
    lines: list[Any] = []

    async def ended(is_over: bool) -> Mirror:
        made = Mirror(MirrorConfig(*SIDES, topics=("clicks",)), lines.append)
        link = made.links[CLICKS] = PartitionLink(CLICKS, CLICKS, b"id", PartitionCopy(CLICKS, 5))
        for _ in range(REPORTED_TRIES):
            link.note_failure("target: no leader")
        made._events.problem("partitions", "waiting", "clicks-0: target: no leader")
        if is_over:
            link.tries, link.trouble = 0, None
        await made.stop()
        return made

    assert asyncio.run(ended(is_over=False)).current_problems == {"partitions": "clicks-0: target: no leader"}
    assert [each["event"] for each in lines] == ["waiting", "left undone"]
    lines.clear()
    assert not asyncio.run(ended(is_over=True)).current_problems
    assert [each["event"] for each in lines] == ["waiting", "well again"]


def test_what_is_left_undone_in_the_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[Any] = []

    async def failing(_accounts: object) -> None:
        raise TimedOutError("nobody answers")

    async def ended() -> Mirror:
        made = Mirror(MirrorConfig(*SIDES, topics=("clicks",)), lines.append)
        monkeypatch.setattr(made._audit_reporter, "report", failing)
        await made.stop()
        return made

    assert asyncio.run(ended()).current_problems == {"audit": "nobody answers"}
    assert lines == [{"about": "audit", "event": "left undone", "reason": "nobody answers"}]


def test_mirror_waits_for_a_cluster_that_is_away_when_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[Any] = []
    failures: dict[str, list[BarnabasError]] = {
        "source": [DisconnectedError("nobody at a:1")] * 3,
        "target": [TimedOutError("no answer of b:1")],
        "ledger": [ApiError(ErrorCode.NOT_CONTROLLER)],
    }

    async def nothing(*_given: object) -> None:
        await asyncio.sleep(0)

    async def started() -> None:
        made = Mirror(MirrorConfig(*SIDES, topics=("clicks",)), lines.append)

        def fails(name: str) -> Any:
            async def step() -> None:
                if failures[name]:
                    raise failures[name].pop()

            return step

        monkeypatch.setattr(mirror, "AGAIN_S", 0.0)
        for name, step in (("source", made._source), ("target", made._target)):
            monkeypatch.setattr(step, "start", fails(name))
            step.id = name
        monkeypatch.setattr(made._ledger, "create", fails("ledger"))
        monkeypatch.setattr(made, "_again", nothing)
        monkeypatch.setattr(made._reading, "run", nothing)
        monkeypatch.setattr(made._writing, "run", nothing)
        await made.start()
        assert made.sums.lag is None, "no topic was looked at yet"
        await made.stop()

    asyncio.run(started())
    assert [(each["about"], each["event"]) for each in lines] == [
        ("source", "waiting"),
        ("source", "well again"),
        ("target", "waiting"),
        ("target", "well again"),
        ("ledger", "waiting"),
        ("ledger", "well again"),
    ]


def test_clusters_that_are_one_are_refused_and_not_waited_for() -> None:
    async def started() -> None:
        made = Mirror(MirrorConfig(*SIDES, topics=("clicks",)), lambda _event: None)

        async def refused() -> None:
            raise ConfigurationError("no id")

        made._source.start = refused  # type: ignore[method-assign]
        try:
            await made.start()
        finally:
            await made.stop()

    with pytest.raises(ConfigurationError):
        asyncio.run(started())


def test_source_is_asked_how_far_stopped_partitions_are_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def log_ends(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        assert list(partitions) == [CLICKS]
        return {CLICKS: 50}

    async def ended() -> Mirror:
        made = Mirror(MirrorConfig(*SIDES, topics=("clicks",)), lambda _event: None)
        monkeypatch.setattr(made._source, "log_ends", log_ends)
        made._topics.rounds = 1
        for partition, is_stopped in ((0, True), (1, False)):
            tp = TopicPartition("clicks", partition)
            copy = PartitionCopy(tp, 5)
            copy.place(OffsetMap(10, 10), None, 0.0)
            link = made.links[tp] = PartitionLink(tp, tp, b"id", copy, source_end=12)
            if is_stopped:
                link.stop_with("no", 0.0)
        await made.stop()
        return made

    assert asyncio.run(ended()).final.lag == 42


def test_records_that_the_target_deleted_after_they_were_acknowledged_stop_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def source_ends(_where: TopicPartition) -> tuple[int, int]:
        return 5, 5

    async def target_ends(_where: TopicPartition) -> tuple[int, int]:
        return 5, 5

    async def term(_where: TopicPartition) -> LeaderTerm:
        return LeaderTerm(1, 0, None)

    async def placed_again() -> None:
        made = Mirror(MirrorConfig(*SIDES, topics=("clicks",)), lambda _event: None)
        for side, ends in ((made._source, source_ends), (made._target, target_ends)):
            monkeypatch.setattr(side, "ends", ends)
            monkeypatch.setattr(side, "begin_term", term)
        link = audited_link()
        bring(link, 0, 2)
        link.confirmed = link.known
        bring(link, 2, 3)
        link.reset_after("another leader")
        await made._resume_positions.place(link)
        assert link.copy.position == 5

    asyncio.run(placed_again())
