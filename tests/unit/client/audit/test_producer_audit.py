"""A producer's part in the audit: what comes in while it tells is told too, and nothing is lost by trouble."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.audit.events import MonitoringEvent
from barnabas.audit.identities import Producer
from barnabas.audit.windows import NOTHING, Tally, tally, window_of
from barnabas.client.audit import event_sender, producer_audit
from barnabas.client.audit.event_sender import AUDIT_TOPIC
from barnabas.client.audit.producer_audit import ProducerAudit
from barnabas.client.cluster import Cluster, TopicView
from barnabas.client.interceptors import ClientContext
from barnabas.client.producer.accumulator import BatchWaiter, ProducerBatch
from barnabas.clock import SYSTEM_CLOCK, Clock, ManualClock
from barnabas.errors import ApiError, BarnabasError, ErrorCode, TimedOutError
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.records import BatchBuilder, read_records
from tests.support.searches import examples

MINUTE_MS = 60_000


class FakeCluster:
    """Takes monitoring events; `meanwhile` is done while the next request is on its way, and may raise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[MonitoringEvent] = []
        self.meanwhile: list[Callable[[], None]] = []
        self.has_topic = False
        self.answers_all = True
        self.bytes_max = 1_000_000
        """Of a batch, when built."""
        self.updated: list[Callable[[Any], None]] = []
        self.see(b"a" * 16)
        monkeypatch.setattr(event_sender, "create_topic", self.create_topic)

    def see(self, topic_id: bytes) -> None:
        """Let the topic have this id."""
        topics = {"clicks": TopicView("clicks", topic_id=topic_id)}
        self.view = SimpleNamespace(topics=topics, leader=lambda _tp: 1)
        for listener in self.updated:
            listener(self.view)

    async def create_topic(self, _cluster: object, _name: str, **_settings: object) -> None:
        if self.has_topic:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, "it exists")
        self.has_topic = True

    def use_topics(self, _topics: list[str]) -> None:
        pass

    def refused(self, error: ApiError, *_needs: object) -> ApiError:
        return error

    async def topic(self, _name: str, *, timeout_s: float) -> object:
        assert timeout_s > 0
        return SimpleNamespace(partitions=[0])

    async def retrying(self, attempt: Callable[[], Awaitable[None]], **_settings: object) -> None:
        await attempt()

    async def send(self, _node: int, request: ProduceRequest, **_settings: object) -> object:
        await asyncio.sleep(0)
        if self.meanwhile:
            self.meanwhile.pop(0)()
        answers = []
        for topic in request.topic_data:
            assert topic.name == AUDIT_TOPIC
            for part in topic.partition_data:
                assert part.records is not None
                is_large = len(part.records) > self.bytes_max
                code = ErrorCode.MESSAGE_TOO_LARGE if is_large else ErrorCode.NONE
                answers.append(SimpleNamespace(index=part.index, error_code=code, error_message=None))
                if is_large:
                    continue
                records = read_records(memoryview(bytes(part.records)), AUDIT_TOPIC, 0)
                self.events.extend(MonitoringEvent.from_json(each.value) for each in records)
        partitions = answers if self.answers_all else []
        return SimpleNamespace(responses=[SimpleNamespace(name=AUDIT_TOPIC, partition_responses=partitions)])

    def told(self) -> dict[tuple[str, int], int]:
        """What all events together say was counted, by topic id and window."""
        latest = {event.key: event for event in self.events}
        counted: dict[tuple[str, int], int] = {}
        for event in latest.values():
            place = (event.topic_id, event.window_ms)
            counted[place] = counted.get(place, 0) + sum(each.records for each in event.counted.values())
        return counted


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster(monkeypatch)


def audit_of(cluster: FakeCluster, clock: Clock = SYSTEM_CLOCK) -> ProducerAudit:
    audit = ProducerAudit()
    audit.attach(
        ClientContext(
            client_id="shop",
            group=None,
            request_timeout_ms=1_000,
            clock=clock,
            cluster=cast("Cluster", cluster),
            locked=nullcontext,
            positions=dict,
        )
    )
    return audit


def settle(audit: ProducerAudit, window: int, sequence: int, error: BarnabasError | None = None) -> None:
    builder = BatchBuilder()
    builder.append(window * MINUTE_MS, None, b"x")
    batch = ProducerBatch("clicks", 0, (0,), 0.0, builder, cast("BatchWaiter", None))
    batch.identify(7, 0, sequence)
    batch.attempts = 2
    batch.payload()
    audit.on_delivery_batch(batch, error)


def run(awaitable: Any) -> None:
    asyncio.run(awaitable)


ID = (b"a" * 16).hex()


def test_what_is_acknowledged_while_a_new_instance_begins_is_told_once(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_audit, "WINDOWS_MAX", 2)
    audit = audit_of(cluster)
    for window in range(4):
        settle(audit, window, window)

    def meanwhile() -> None:
        settle(audit, 3, 4)
        settle(audit, 9, 5)

    cluster.meanwhile.append(meanwhile)

    async def tell() -> None:
        await audit.report()
        await audit.report(is_last=True)

    run(tell())
    assert cluster.told() == {(ID, window * MINUTE_MS): count for window, count in enumerate((1, 1, 1, 2))} | {
        (ID, 9 * MINUTE_MS): 1
    }
    assert len({event.instance for event in cluster.events}) == 2
    assert [event.is_last for event in cluster.events].count(True) == 1
    assert cluster.events[-1].is_last


def test_doubt_that_comes_while_its_window_is_told_is_told_the_next_time(cluster: FakeCluster) -> None:
    audit = audit_of(cluster)
    settle(audit, 0, 0)
    cluster.meanwhile.append(lambda: settle(audit, 0, 1, TimedOutError("no answer")))

    async def tell() -> None:
        await audit.report()
        await audit.report()

    run(tell())
    assert [len(event.doubts) for event in cluster.events] == [0, 1]


def fail() -> None:
    raise TimedOutError("no answer")


def test_what_was_told_before_trouble_is_not_told_again_and_an_end_is_told_after_all_else(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_audit, "EVENTS_AT_ONCE", 2)
    audit = audit_of(cluster)
    for window in range(5):
        settle(audit, window, window)
    cluster.meanwhile += [lambda: None, fail]

    async def tell() -> None:
        await audit.report(is_last=True)
        assert [event.window_ms // MINUTE_MS for event in cluster.events] == [0, 1]
        assert not any(event.is_last for event in cluster.events)
        await audit.report(is_last=True)

    run(tell())
    assert sorted(event.window_ms // MINUTE_MS for event in cluster.events[:-1]) == [0, 1, 2, 3, 4]
    assert cluster.events[-1].is_last


def test_what_was_told_in_a_request_of_unknown_fate_is_told_once_more_later(cluster: FakeCluster) -> None:
    """That request may come after the next one, and compaction keeps what stands last."""
    audit = audit_of(cluster)
    settle(audit, 0, 0)
    cluster.meanwhile.append(fail)

    async def tell() -> None:
        for told in (0, 1, 2, 2):
            await audit.report()
            assert len(cluster.events) == told

    run(tell())
    assert cluster.events[0].number < cluster.events[1].number


def test_what_was_not_answered_is_told_once_more(cluster: FakeCluster) -> None:
    audit = audit_of(cluster)
    settle(audit, 0, 0)
    cluster.answers_all = False

    async def tell() -> None:
        await audit.report(is_last=True)
        assert not any(event.is_last for event in cluster.events)
        cluster.answers_all = True
        await audit.report(is_last=True)

    run(tell())
    assert len(cluster.events) == 3
    assert cluster.events[-1].is_last


def test_an_event_that_is_too_large_holds_up_no_other_and_the_producer_does_not_say_that_it_told_all(
    cluster: FakeCluster,
) -> None:
    audit = audit_of(cluster)
    for window in range(5):
        settle(audit, window, window)
    for number in range(400):
        settle(audit, 2, number, TimedOutError("no answer"))
    cluster.bytes_max = 1_500
    run(audit.report(is_last=True))
    assert sorted(event.window_ms // MINUTE_MS for event in cluster.events) == [0, 1, 3, 4]
    assert not any(event.is_last for event in cluster.events)


def test_of_events_that_are_too_large_it_is_warned_once(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    audit = audit_of(cluster)
    cluster.bytes_max = 10

    async def tell() -> None:
        for number in range(3):
            settle(audit, 0, number)
            await audit.report()

    run(tell())
    assert [record.getMessage().split(",")[0] for record in caplog.records] == ["the audit's events of topic clicks"]


def test_what_cannot_be_told_for_long_is_given_up_and_the_producer_does_not_say_that_it_told_all(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_audit, "WINDOWS_MAX", 2)
    audit = audit_of(cluster)

    async def tell() -> None:
        for number in range(30):
            settle(audit, number, number)
            cluster.meanwhile = [fail]
            await audit.report()
        cluster.meanwhile = []
        await audit.report(is_last=True)
        await audit.report(is_last=True)

    run(tell())
    told = {event.window_ms // MINUTE_MS for event in cluster.events}
    assert told == set(range(30 - len(told), 30))
    assert len(told) <= 3 * (producer_audit.EARLIER_MAX + 1)
    assert not any(event.is_last for event in cluster.events)


def test_doubts_that_are_not_told_keep_the_producer_from_saying_that_it_told_all(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_audit, "DOUBTS_MAX", 2)
    audit = audit_of(cluster)
    for number in range(3):
        settle(audit, 0, number, TimedOutError("no answer"))
    run(audit.report(is_last=True))
    assert [(len(event.doubts), event.is_last) for event in cluster.events] == [(2, False)]


def test_all_is_told_again_where_the_topic_of_the_audit_is_gone(cluster: FakeCluster) -> None:
    audit = audit_of(cluster)
    settle(audit, 0, 0)

    async def tell() -> None:
        await audit.report()
        cluster.events.clear()
        cluster.has_topic = False
        settle(audit, 1, 1)
        cluster.meanwhile.append(fail)
        await audit.report()
        await audit.report()

    run(tell())
    assert cluster.told() == {(ID, 0): 1, (ID, MINUTE_MS): 1}


def test_topic_that_is_made_again_is_another_one(cluster: FakeCluster) -> None:
    audit = audit_of(cluster)
    settle(audit, 0, 0)
    cluster.see(b"b" * 16)
    settle(audit, 0, 1)
    run(audit.report())
    assert cluster.told() == {(ID, 0): 1, ((b"b" * 16).hex(), 0): 1}
    assert len({json.dumps(event.key.decode()) for event in cluster.events}) == 2


def test_telling_does_not_wait_longer_than_it_may_for_another_telling(cluster: FakeCluster) -> None:
    audit = audit_of(cluster)
    settle(audit, 0, 0)
    waiting = asyncio.Event()

    async def stuck(_attempt: object, **_settings: object) -> None:
        await waiting.wait()

    async def tell() -> None:
        cluster.retrying = stuck  # type: ignore[method-assign]
        first = asyncio.create_task(audit.report())
        await asyncio.sleep(0)
        await audit.report(timeout_s=0.01)
        assert not first.done()
        waiting.set()
        await first

    run(tell())


TELL, ANOTHER_TOPIC, ANOTHER_EPOCH, GAP = "tell", "another topic", "another epoch", "gap"

batches = st.tuples(st.integers(0, 1), st.lists(st.integers(-1, 2 * MINUTE_MS), min_size=1, max_size=3))
steps = st.one_of(batches, batches, batches, st.sampled_from([TELL, ANOTHER_TOPIC, ANOTHER_EPOCH, GAP]))


@settings(max_examples=examples(60))
@given(st.lists(steps, max_size=30))
def test_what_is_told_is_what_was_acknowledged_record_by_record(
    given_steps: list[tuple[int, list[int]] | str],
) -> None:
    expected: dict[tuple[str, int, Producer], Tally] = {}
    epoch, topic_id, sequences = 0, b"a" * 16, [2**31 - 3, 0]
    with pytest.MonkeyPatch.context() as monkeypatch:
        cluster = FakeCluster(monkeypatch)
        audit = audit_of(cluster)
        for step in given_steps:
            if step == TELL:
                run(audit.report())
            elif step == ANOTHER_TOPIC:
                topic_id = bytes([topic_id[0] + 1]) * 16
                cluster.see(topic_id)
            elif step == ANOTHER_EPOCH:
                epoch += 1
            elif step == GAP:
                sequences = [(each + 1) & 0x7FFFFFFF for each in sequences]
            else:
                assert not isinstance(step, str)
                partition, times_ms = step
                producer, sequence = Producer(7, epoch, partition), sequences[partition]
                batch = batch_of(producer, sequence, times_ms)
                size_bytes = len(batch.payload())
                audit.on_delivery_batch(batch, None)
                for number, time_ms in enumerate(times_ms):
                    place = (topic_id.hex(), window_of(time_ms, MINUTE_MS), producer)
                    one = tally(producer, (sequence + number) & 0x7FFFFFFF, 1, 0 if number else size_bytes)
                    expected[place] = expected.get(place, NOTHING).plus(one)
                sequences[partition] = (sequence + len(times_ms)) & 0x7FFFFFFF
        run(audit.report())
    latest = {event.key: event for event in cluster.events}
    told = {(e.topic_id, e.window_ms, who): found for e in latest.values() for who, found in e.counted.items()}
    assert told == expected


def batch_of(producer: Producer, sequence: int, times_ms: list[int]) -> ProducerBatch:
    builder = BatchBuilder()
    for time_ms in times_ms:
        builder.append(time_ms, None, b"x")
    batch = ProducerBatch("clicks", producer.partition, (0,), 0.0, builder, cast("BatchWaiter", None))
    batch.identify(producer.producer_id, producer.producer_epoch, sequence)
    return batch


def test_records_acknowledged_long_after_their_window_are_late_from_the_next_telling_on(
    cluster: FakeCluster,
) -> None:
    clock = ManualClock(start_ms=0)
    audit = audit_of(cluster, clock)
    settle(audit, 0, 0)
    settle(audit, 0, 1)
    clock.advance((MINUTE_MS + producer_audit.LATE_MS) / 1000)
    settle(audit, 0, 2)
    run(audit.report())
    settle(audit, 0, 3)
    settle(audit, 0, 4)
    run(audit.report())
    assert [event.late for event in cluster.events] == [0, 2]
