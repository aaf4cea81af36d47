"""Audits for pages: one per topic at a time, a few of all topics, and their results for some seconds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from barnabas.audit.balance import Balance, WindowBalance
from barnabas.clock import SYSTEM_CLOCK
from barnabas.console import audits as module
from barnabas.console.audits import AGE_S_MAX, RESULTS_MAX, SOURCE_OUTAGE_S, AuditResult, Audits, TopicAudit
from barnabas.console.cached import Cached
from barnabas.errors import ApiError, BarnabasError, ErrorCode, TimedOutError, UnavailableError

RESULT = AuditResult(Balance([], [], 60_000), 0)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def __getattr__(self, name: str) -> object:
        return getattr(SYSTEM_CLOCK, name)


class Stage:
    """Audits whose work a test controls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, turns: int = 2) -> None:
        self.clock = Clock()
        self.begun: list[str] = []
        self.may_end = threading.Event()
        self.error: Exception | None = None
        self.audits = Audits({}, None, asyncio.Semaphore(turns), self.clock)  # type: ignore[arg-type]
        monkeypatch.setattr(self.audits, "_audit", self.audit)

    def audit(self, audit: TopicAudit) -> AuditResult:
        self.begun.append(audit.topic)
        self.may_end.wait(60)
        if self.error is not None:
            raise self.error
        return RESULT


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(timed())


async def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - a thread makes it true
        await asyncio.sleep(0.001)


def test_topic_is_audited_once_however_many_pages_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        stage = Stage(monkeypatch)
        audit = stage.audits.ask("clicks")
        assert stage.audits.ask("clicks") is audit
        assert audit.is_running
        stage.may_end.set()
        await stage.audits.wait(audit, 60)
        assert (audit.result, audit.is_running, stage.begun) == (RESULT, False, ["clicks"])
        stage.audits.ask("clicks")
        assert not audit.is_running
        stage.clock.now_s += AGE_S_MAX + 1
        assert stage.audits.ask("clicks").is_running
        assert audit.result is RESULT  # the page shows the last result while a new audit runs
        await stage.audits.wait(audit, 60)

    run(test)


def test_few_audits_run_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        stage = Stage(monkeypatch)
        asked = [stage.audits.ask(f"t{number}") for number in range(5)]
        await wait_for(lambda: len(stage.begun) == 2)
        stage.may_end.set()
        for each in asked:
            await stage.audits.wait(each, 60)
        assert sorted(stage.begun) == [f"t{number}" for number in range(5)]

    run(test)


def test_failed_audit_has_a_problem_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        stage = Stage(monkeypatch)
        stage.may_end.set()
        stage.error = BarnabasError("the log is compacted")
        audit = stage.audits.ask("clicks")
        await stage.audits.wait(audit, 60)
        assert (audit.result, audit.problem) == (None, "the log is compacted")
        assert not stage.audits.ask("clicks").is_running
        stage.error, stage.clock.now_s = ValueError("a defect"), stage.clock.now_s + AGE_S_MAX + 1
        await stage.audits.wait(stage.audits.ask("clicks"), 60)
        assert "see the log of the console" in audit.problem
        stage.error, stage.clock.now_s = None, stage.clock.now_s + AGE_S_MAX + 1
        await stage.audits.wait(stage.audits.ask("clicks"), 60)
        assert (audit.result, audit.problem) == (RESULT, "")

    run(test)


def test_waiting_audits_and_kept_results_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        stage = Stage(monkeypatch)
        monkeypatch.setattr(module, "WAITING_MAX", 3)
        asked = [stage.audits.ask(f"w{number}") for number in range(3)]
        with pytest.raises(UnavailableError, match="too many audits"):
            stage.audits.ask("one more")
        stage.may_end.set()
        for each in asked:
            await stage.audits.wait(each, 60)
        for number in range(RESULTS_MAX + 5):
            await stage.audits.wait(stage.audits.ask(f"t{number}"), 60)
        assert len(stage.audits._audits) <= RESULTS_MAX + 1

    run(test)


def test_results_with_many_windows_are_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        stage = Stage(monkeypatch)
        stage.may_end.set()
        monkeypatch.setattr(module, "WINDOWS_MAX", 5)
        large = AuditResult(Balance([WindowBalance(number) for number in range(4)], [], 60_000), 0)
        for name in ("old", "older than the newest", "newest"):
            audit = stage.audits.ask(name)
            await stage.audits.wait(audit, 60)
            audit.result = large
        stage.audits.ask("newest")
        assert list(stage.audits._audits) == ["older than the newest", "newest"]

    run(test)


def test_earlier_list_of_topics_is_shown_while_reports_take_long_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        stage = Stage(monkeypatch)
        may_read, found = asyncio.Event(), ["clicks"]
        may_read.set()

        async def read() -> frozenset[str]:
            await may_read.wait()
            return frozenset(found)

        monkeypatch.setattr(stage.audits, "_reported", Cached(read, 1.0, stage.clock.monotonic))
        assert await stage.audits.reported_topics() == {"clicks"}
        may_read.clear()
        found.append("views")
        stage.clock.now_s += 2
        assert await stage.audits.reported_topics() == {"clicks"}
        may_read.set()
        assert await stage.audits.reported_topics() == {"clicks", "views"}

    run(test)


def test_first_list_of_topics_does_not_hold_up_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        stage = Stage(monkeypatch)
        may_read = asyncio.Event()

        async def read() -> frozenset[str]:
            await may_read.wait()
            return frozenset({"clicks"})

        monkeypatch.setattr(stage.audits, "_reported", Cached(read, 1.0, stage.clock.monotonic))
        assert await stage.audits.reported_topics() is None
        may_read.set()
        assert await stage.audits.reported_topics() == {"clicks"}

    run(test)


def test_close_ends_without_waiting_for_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        stage = Stage(monkeypatch)
        stage.audits.ask("clicks")
        await wait_for(lambda: stage.begun == ["clicks"])
        await stage.audits.close()
        stage.may_end.set()

    run(test)


class Source:
    """Comparisons with a source cluster that a test makes fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.compared_with_source: list[bool] = []
        self.error: BarnabasError | None = None
        self.audits = Audits({}, None, asyncio.Semaphore(1), self.clock, {"bootstrap.servers": "a:1"})  # type: ignore[arg-type]
        monkeypatch.setattr(self.audits, "_compare", self.compare)

    def compare(self, _admin: object, _audit: object, _side: object, source: object) -> Balance:
        self.compared_with_source.append(source is not None)
        if source is not None and self.error is not None:
            raise self.error
        return RESULT.balance

    def problem(self) -> str:
        return self.audits._compare_all(object(), TopicAudit("clicks"), None)[1]  # type: ignore[arg-type]


def test_audit_leaves_out_a_source_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch)
    assert source.problem() == ""
    source.error = TimedOutError("no broker answers at a:1")
    assert "no broker answers at a:1" in source.problem()
    assert "no broker answers at a:1" in source.problem()
    assert source.compared_with_source == [True, True, False, False]  # the second audit did not wait for the source
    source.error = None
    source.clock.now_s += SOURCE_OUTAGE_S
    assert source.problem() == ""


def test_error_of_one_mirrored_topic_concerns_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch)
    source.error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone")
    assert "gone" in source.problem()
    source.error = None
    assert source.problem() == ""
