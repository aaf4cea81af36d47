"""What a mirror reads of what was told before: its own, however much others have told, as long as it gets on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Self

import pytest

from barnabas.audit.batch_windows import RecordRange
from barnabas.audit.events import MIRRORED, MonitoringEvent
from barnabas.audit.identities import Producer
from barnabas.client.audit.event_sender import AUDIT_TOPIC, AUDIT_TOPIC_CONFIG
from barnabas.errors import TimedOutError
from barnabas.mirror import audit_reporting
from barnabas.mirror.audit_account import CountedBatch, PartitionAuditAccount, TopicAuditAccount
from barnabas.mirror.audit_reporting import TIMEOUT_MS, AuditReporter
from barnabas.model import TopicPartition

POLLS = 10
POLL_TAKES_S = 0.9 * TIMEOUT_MS / 1000


class SlowTime(asyncio.SelectorEventLoop):
    """A loop whose time passes when somebody says so."""

    passed_s = 0.0

    def time(self) -> float:
        return self.passed_s


class Log:
    """Stands for the consumer: each poll brings as much as `bring` returns, and takes long."""

    def __init__(self, bring: Callable[[int], list[bytes]]) -> None:
        self._bring = bring
        self._at = self._polls = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        pass

    def assign(self, _places: object) -> None:
        pass

    def seek(self, _place: object, _offset: int) -> None:
        pass

    async def position(self, _place: object) -> int:
        return self._at

    async def poll(self, *, max_records: int, timeout_s: float) -> list[Any]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SlowTime)
        loop.passed_s += POLL_TAKES_S
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        values = self._bring(self._polls)
        self._polls += 1
        self._at += len(values)
        return [SimpleNamespace(value=value) for value in values]


def event(
    account: TopicAuditAccount, *, topic: str = "clicks", instance: str | None = None, window_ms: int = 0
) -> bytes:
    named = account.instance if instance is None else instance
    return MonitoringEvent(topic, MIRRORED, window_ms, 60_000, named, 1, "h", "a", topic_id=account.topic_id).to_json()


def read(
    monkeypatch: pytest.MonkeyPatch, account: TopicAuditAccount, bring: Callable[[int], list[bytes]], end: int
) -> list[MonitoringEvent]:
    """Have a mirror read what was told, which is up to `end`; return what it has kept of that."""
    kept: list[MonitoringEvent] = []

    async def offsets(_cluster: object, asked: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        return {place: SimpleNamespace(offset=0 if time_ms >= 0 else end) for place, time_ms in asked.items()}

    async def refresh() -> Any:
        return SimpleNamespace(topics={AUDIT_TOPIC: SimpleNamespace(partitions=[SimpleNamespace(partition=0)])})

    monkeypatch.setattr(audit_reporting, "AsyncConsumer", lambda *_settings, **_more: Log(bring))
    monkeypatch.setattr(audit_reporting, "list_offsets", offsets)
    side: Any = SimpleNamespace(cluster=SimpleNamespace(refresh=refresh), settings={})
    telling = AuditReporter(side)
    reading: Callable[..., Awaitable[dict[Any, list[MonitoringEvent]]]] = telling._events_of

    async def noted(*arguments: Any) -> dict[Any, list[MonitoringEvent]]:
        found = await reading(*arguments)
        kept.extend(each for events in found.values() for each in events)
        return found

    monkeypatch.setattr(telling, "_events_of", noted)
    with asyncio.Runner(loop_factory=SlowTime) as runner:
        runner.run(telling._read([account]))
    return kept


@pytest.fixture
def account() -> TopicAuditAccount:
    made = TopicAuditAccount("clicks", "0a", "clicks", "0b", 1, "a mirror")
    made.add(0, CountedBatch(0, 1, Producer(7, 0, 0), 0, [RecordRange(1, 0)]))
    return made


def test_much_is_read_as_long_as_something_comes_and_only_its_own_is_kept(
    monkeypatch: pytest.MonkeyPatch, account: TopicAuditAccount
) -> None:
    own = event(account)
    others = [event(account, instance="b"), event(account, topic="b"), event(account, window_ms=60_000), b"no event"]
    kept = read(monkeypatch, account, lambda poll: [*others, own] if poll == 1 else others, 4 * POLLS + 1)
    assert kept == [MonitoringEvent.from_json(own)]
    assert not account.to_be_read


def test_where_nothing_comes_any_more_reading_ends(monkeypatch: pytest.MonkeyPatch, account: TopicAuditAccount) -> None:
    with pytest.raises(TimedOutError, match=AUDIT_TOPIC):
        read(monkeypatch, account, lambda poll: [b"no event"] if poll < 3 else [], POLLS)
    assert account.to_be_read == {0}


def test_topic_that_was_deleted_is_made_again_compacted(
    monkeypatch: pytest.MonkeyPatch, account: TopicAuditAccount
) -> None:
    made: list[Any] = []
    there = [True, True, False]

    async def describe(_topics: object) -> list[Any]:
        return [SimpleNamespace(partitions=[0] if there.pop(0) else [])]

    async def create_topic(_cluster: object, name: str, **settings: Any) -> None:
        made.append((name, settings["config"]))

    async def known(_name: str, *, timeout_s: float) -> None:
        assert timeout_s > 0

    class Sender:
        async def send_many(self, *_records: Any, **_more: Any) -> list[Any]:
            return []

    cluster = SimpleNamespace(describe=describe, topic=known)
    monkeypatch.setattr(audit_reporting, "AsyncProducer", lambda *_settings, **_more: Sender())
    monkeypatch.setattr(audit_reporting, "create_topic", create_topic)
    side: Any = SimpleNamespace(cluster=cluster, settings={})
    telling = AuditReporter(side)

    async def told() -> None:
        for number in range(3):
            account.read(account.to_be_read, [])
            await telling.report([PartitionAuditAccount(account, 0, number + 1, number)])
            assert len(made) == (number == 2)
            account.add(0, CountedBatch(number + 1, number + 2, Producer(7, 0, 0), number + 1, [RecordRange(1, 0)]))

    asyncio.run(told())
    assert made == [(AUDIT_TOPIC, AUDIT_TOPIC_CONFIG)]
