"""When what a consumer was handed is told, and for how long it is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from barnabas.audit.events import MonitoringEvent, Reach
from barnabas.audit.windows import WINDOW_MS
from barnabas.client.audit.event_sender import EventSender
from barnabas.client.consumer import consumed as consumed_module
from barnabas.client.consumer.consumed import Consumed, Offsets
from barnabas.client.consumer.consumed_telling import ConsumedTelling
from barnabas.errors import ErrorCode, KafkaError
from tests.consumer_core import TOPIC, Scene

WINDOWS = 12


def told(
    monkeypatch: pytest.MonkeyPatch,
    *,
    refused: frozenset[int] = frozenset(),
    commits: bool = False,
    silent: frozenset[int] = frozenset(),
    too_large: bool = False,
) -> tuple[Consumed, list[Any]]:
    """Hand out a record of each of some windows, and tell it; return what is remembered, and the events.

    :param refused: so many of the tellings are, by their number.
    :param commits: whether it is told before a commit only, but for the last time.
    :param silent: so many of the tellings before commits are not answered in the commit's time, by their number.
    :param too_large: whether events with counts are too large for the topic.
    """
    events: list[MonitoringEvent] = []
    tellings = iter(range(100))

    async def have_topic(_sender: EventSender) -> bool:
        return False

    async def send(_sender: EventSender, news: Iterable[MonitoringEvent]) -> list[MonitoringEvent]:
        number = next(tellings)
        if number in silent:
            await asyncio.Event().wait()
        if number in refused:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        events.extend(news)
        return [event for event in news if event.offsets] if too_large else []

    monkeypatch.setattr(EventSender, "have_topic", have_topic)
    monkeypatch.setattr(EventSender, "send", send)
    scene = Scene(partitions=1, group="readers", audit=True)
    scene.core.assign([(TOPIC, 0)])
    scene.place_all()
    (state,) = scene.state.subscription.partitions.values()
    consumed = scene.state.consumed
    assert consumed is not None
    cluster: Any = type("Cluster", (), {"view": scene.view})

    async def read() -> None:
        telling = ConsumedTelling(scene.state, cluster, consumed)
        for offset in range(WINDOWS):
            consumed.coming(state, offset, [Offsets(offset, 1, offset * WINDOW_MS)])
            state.position = offset + 1
            await (telling.tell_before_commit(0.01 if offset in silent else None) if commits else telling.tell())
        await telling.tell()

    asyncio.run(read())
    return consumed, events


@pytest.mark.parametrize("refused", [frozenset[int](), frozenset({3, 4, 9})])
def test_windows_that_were_told_are_forgotten_when_there_are_many(
    monkeypatch: pytest.MonkeyPatch, refused: frozenset[int]
) -> None:
    monkeypatch.setattr(consumed_module, "WINDOWS_MAX", 3)
    consumed, events = told(monkeypatch, refused=refused)
    last = {event.key: event for event in events}
    assert sorted(event.window_ms for event in last.values()) == [each * WINDOW_MS for each in range(WINDOWS)]
    assert all(event.offsets[0].records == 1 for event in last.values())
    assert consumed.window_count <= 3 + 3
    assert len({event.instance for event in events}) > 1


def test_one_name_is_kept_while_windows_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    consumed, events = told(monkeypatch)
    assert consumed.window_count == WINDOWS
    assert len({event.instance for event in events}) == 1


def test_an_event_that_is_too_large_is_told_shorter_at_once_and_never_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, events = told(monkeypatch, too_large=True)
    assert [(event.window_ms // WINDOW_MS, bool(event.offsets)) for event in events] == [
        (window, is_whole) for window in range(WINDOWS) for is_whole in (True, False)
    ]
    assert all(
        event.unknown == {0: Reach(number // 2, number // 2 + 1)}
        for number, event in enumerate(events)
        if not event.offsets
    )


def test_commits_do_not_wait_again_for_what_could_not_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    _, events = told(monkeypatch, refused=frozenset({0, 2}), commits=True)
    assert sorted(event.window_ms for event in events) == [each * WINDOW_MS for each in range(WINDOWS)], "by the last"


def test_a_commit_that_has_little_time_does_not_keep_others_from_telling(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, events = told(monkeypatch, silent=frozenset({0}), commits=True)
    windows = [event.window_ms // WINDOW_MS for event in events]
    assert windows == [0, 1, 0, 1, *range(2, WINDOWS)], "by the next commits, and what nobody knew twice"
    assert len(caplog.records) == 1
