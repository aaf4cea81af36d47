"""The reports of a consumer: when they are sent, and how long windows are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from barnabas.audit.events import MonitoringEvent, Reach
from barnabas.audit.windows import WINDOW_MS
from barnabas.client.audit import consumer_audit
from barnabas.client.audit.consumer_audit import ConsumedCounts, ConsumerAudit, Offsets
from barnabas.client.audit.event_sender import EventSender
from barnabas.errors import ApiError, ErrorCode
from tests.support.consumer_core import TOPIC, Scene

WINDOWS = 12


def reported(
    monkeypatch: pytest.MonkeyPatch,
    *,
    refused: frozenset[int] = frozenset(),
    commits: bool = False,
    silent: frozenset[int] = frozenset(),
    too_large: bool = False,
) -> tuple[ConsumedCounts, list[Any]]:
    """Hand out one record of each of some windows, and report it; return the counts and the events.

    :param refused: numbers of the reports that the broker refuses.
    :param commits: whether only commits report, but for the last report.
    :param silent: numbers of the reports before commits that the broker does not answer in the commit's time.
    :param too_large: whether events with counts exceed the topic's message size.
    """
    events: list[MonitoringEvent] = []
    reports = iter(range(100))

    async def ensure_topic(_sender: EventSender) -> bool:
        return False

    async def send(_sender: EventSender, news: Iterable[MonitoringEvent]) -> list[MonitoringEvent]:
        number = next(reports)
        if number in silent:
            await asyncio.Event().wait()
        if number in refused:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
        events.extend(news)
        return [event for event in news if event.offsets] if too_large else []

    monkeypatch.setattr(EventSender, "ensure_topic", ensure_topic)
    monkeypatch.setattr(EventSender, "send", send)
    audit = ConsumerAudit("readers")
    scene = Scene(partitions=1, group="readers", interceptors=[audit])
    scene.core.assign([(TOPIC, 0)])
    scene.place_all()
    (state,) = scene.state.subscription.partitions.values()

    async def read() -> None:
        audit.attach(scene.context())
        for offset in range(WINDOWS):
            audit.counts.note_decoded(state.tp, offset, [Offsets(offset, 1, offset * WINDOW_MS)])
            state.position = offset + 1
            await (audit.before_commit({}, 0.01 if offset in silent else None) if commits else audit.report())
        await audit.report()

    asyncio.run(read())
    return audit.counts, events


@pytest.mark.parametrize("refused", [frozenset[int](), frozenset({3, 4, 9})])
def test_reported_windows_are_forgotten_when_there_are_many(
    monkeypatch: pytest.MonkeyPatch, refused: frozenset[int]
) -> None:
    monkeypatch.setattr(consumer_audit, "WINDOWS_MAX", 3)
    counts, events = reported(monkeypatch, refused=refused)
    last = {event.key: event for event in events}
    assert sorted(event.window_ms for event in last.values()) == [each * WINDOW_MS for each in range(WINDOWS)]
    assert all(event.offsets[0].records == 1 for event in last.values())
    assert counts.window_count <= 3 + 3
    assert len({event.instance for event in events}) > 1


def test_one_name_is_kept_while_windows_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, events = reported(monkeypatch)
    assert counts.window_count == WINDOWS
    assert len({event.instance for event in events}) == 1


def test_smaller_event_replaces_one_that_is_too_large_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, events = reported(monkeypatch, too_large=True)
    assert [(event.window_ms // WINDOW_MS, bool(event.offsets)) for event in events] == [
        (window, is_whole) for window in range(WINDOWS) for is_whole in (True, False)
    ]
    assert all(
        event.unknown == {0: Reach(number // 2, number // 2 + 1)}
        for number, event in enumerate(events)
        if not event.offsets
    )


def test_commits_do_not_wait_again_for_what_could_not_be_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    _, events = reported(monkeypatch, refused=frozenset({0, 2}), commits=True)
    assert sorted(event.window_ms for event in events) == [each * WINDOW_MS for each in range(WINDOWS)], "by the last"


def test_commit_with_little_time_does_not_keep_others_from_reporting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, events = reported(monkeypatch, silent=frozenset({0}), commits=True)
    windows = [event.window_ms // WINDOW_MS for event in events]
    assert windows == [0, 1, 0, 1, *range(2, WINDOWS)], "by the next commits, and what nobody knew twice"
    assert len(caplog.records) == 1
