"""Interceptors of producers and consumers: results, order, and exceptions that change nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from barnabas.client import interceptors as interceptors_module
from barnabas.client.audit.producer_audit import ProducerAudit
from barnabas.client.interceptors import (
    ClientContext,
    ConsumerInterceptor,
    ConsumerInterceptors,
    FetchedBatch,
    ProducerInterceptor,
    ProducerInterceptors,
    ProducerRecord,
    SendBatch,
    SentBatch,
)
from barnabas.client.producer.accumulator import Accumulator, TopicQueues, run_callbacks
from barnabas.client.producer.record_appender import Partitioner, RecordAppender, RecordPartitioner
from barnabas.client.producer.serializers import Serializers
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, BarnabasError, BufferFullError, ClosedError, ConfigurationError, TimedOutError
from barnabas.model import TimestampType, TopicPartition
from barnabas.records import Compression, Delivery, OpenEncoders, Record, read_records
from tests.simulation.loop import SimulatedLoop
from tests.support.consumer_core import TOPIC, Scene

MARK = ("trace", b"7")
PARTITIONS = 3


class Sending:
    """A producer's way from `send` to settled batches, without a broker."""

    def __init__(self, *interceptors: ProducerInterceptor, partitioner: Partitioner | None = None) -> None:
        every = ProducerInterceptors(interceptors)
        open_encoders: dict[str, OpenEncoders] = {}
        self.clock = ManualClock()
        self.accumulator = Accumulator(
            batch_size=10_000,
            buffer_memory=100_000,
            linger_s=0.01,
            max_block_s=0.05,
            max_record_bytes=5_000,
            compression=Compression.NONE,
            clock=self.clock,
            wake=lambda: None,
            random=lambda: 0.0,
            open_encoders=open_encoders,
            interceptors=every,
        )
        self.topic = self.accumulator.set_partitions("t", PARTITIONS, range(PARTITIONS))
        self.records = RecordAppender(
            self.accumulator,
            RecordPartitioner(partitioner),
            open_encoders,
            self._queues,
            self.clock,
            Serializers(None, None),
            every,
        )
        self.plain_send = self.records.appender().send
        self.send = self.records.intercepted(self.plain_send)

    def _queues(self, topic: str) -> TopicQueues:
        assert topic == "t"
        return self.topic

    def send_many(self, values: Sequence[Any], **settings: Any) -> None:
        given = {"keys": None, "partition": None, "timestamps_ms": None, "headers": None, **settings}
        self.records.append_all(self.records.runs_of_values(self.topic, values, **given))

    def send_arrow(self, table: pa.Table, **settings: Any) -> None:
        given = {"value": None, "key": None, "timestamp": None, "partition": None, **settings}
        self.records.append_all(self.records.runs_of_rows(self.topic, table, **given))

    def settle(self, error: BarnabasError | None = None, base_offset: int = 100) -> None:
        """Settle all batches that wait."""
        for queue in self.accumulator.waiting():
            batch = self.accumulator.take(queue)
            run_callbacks(self.accumulator.complete(batch, -1 if error else base_offset, error=error))

    def sent(self) -> list[Record]:
        """Return all records that wait, by partitions."""
        return [
            record
            for queue in self.accumulator.waiting()
            for batch in queue.batches
            for record in read_records(bytes(batch.payload()), queue.topic, queue.partition)
        ]


class Marking(ProducerInterceptor):
    """Adds a header to each record, and counts the calls."""

    def __init__(self) -> None:
        self.calls = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.calls += 1
        return record.with_headers(MARK)


class Replacing(ProducerInterceptor):
    """Returns what a function makes of each record."""

    def __init__(self, replace: Callable[[ProducerRecord], Any]) -> None:
        self._replace = replace

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        made: ProducerRecord | None = self._replace(record)
        return made


class MarkingBatches(ProducerInterceptor):
    """Adds a header to each record of `send_many` and `send_arrow`."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def on_send_batch(self, batch: SendBatch) -> SendBatch:
        self.sizes.append(len(batch))
        return batch.with_headers(MARK)


def fail(*_arguments: object) -> Any:
    raise RuntimeError("planted")


# --- records on their way ---


def test_record_that_on_send_returns_is_sent_in_place_of_the_given_one() -> None:
    replaced = ProducerRecord("t", b"other", b"key", 2, 77, (MARK,))
    sending = Sending(Replacing(lambda _record: replaced))
    sending.send("t", b"value", headers={"mine": b"1"})
    (record,) = sending.sent()
    assert (record.value, record.key, record.partition, record.timestamp_ms) == (b"other", b"key", 2, 77)
    assert record.headers == (MARK,)


def test_none_from_on_send_leaves_the_record() -> None:
    seen: list[ProducerRecord] = []
    sending = Sending(Replacing(seen.append))
    sending.send("t", b"value", b"key", partition=1, timestamp_ms=5, headers={"mine": b"1"})
    assert seen == [ProducerRecord("t", b"value", b"key", 1, 5, [("mine", b"1")])]
    (record,) = sending.sent()
    assert (record.value, record.key, record.headers) == (b"value", b"key", (("mine", b"1"),))


@pytest.mark.parametrize(
    "replace",
    [
        fail,
        lambda _record: b"other",
        lambda record: record._replace(topic="u"),
        lambda record: record._replace(value="text"),
        lambda record: record._replace(key=7),
        lambda record: record._replace(partition=PARTITIONS),
        lambda record: record._replace(timestamp_ms="now"),
        lambda record: record._replace(timestamp_ms=2**63),
        lambda record: record._replace(value=bytes(10_000)),
        lambda record: record.with_headers((b"name", b"value")),
        lambda record: record.with_headers(("name", "value")),
    ],
)
def test_exception_or_invalid_record_of_on_send_leaves_the_record_and_is_logged_once(
    replace: Callable[[ProducerRecord], Any], caplog: pytest.LogCaptureFixture
) -> None:
    sending = Sending(Replacing(replace), Marking())
    sending.send("t", b"first", partition=0)
    sending.send("t", b"second", partition=0)
    sending.send_many([b"third"], partition=0)
    assert [(record.value, record.headers) for record in sending.sent()] == [
        (value, (MARK,)) for value in (b"first", b"second", b"third")
    ]
    (line,) = caplog.records
    assert "interceptor Replacing raised" in line.getMessage()
    assert " in on_send;" in line.getMessage()


def test_each_interceptor_gets_the_record_of_the_one_before() -> None:
    first = Replacing(lambda record: record._replace(value=record.value + b"1"))
    second = Replacing(lambda record: record._replace(value=record.value + b"2"))
    sending = Sending(first, second)
    sending.send("t", b"")
    sending.send_many([b"", b"x"])
    assert sorted(record.value or b"" for record in sending.sent()) == [b"12", b"12", b"x12"]


def test_hooks_that_nobody_overrides_are_not_called() -> None:
    unused = ProducerInterceptors([ProducerInterceptor()])
    assert not any([unused.see_send, unused.see_batches, unused.delivery_hooks, unused.have_flush])
    idle = ConsumerInterceptors([ConsumerInterceptor()])
    assert not any([idle.see_batches, idle.see_records, idle.see_repositions])


def test_callback_of_an_intercepted_record_is_called() -> None:
    called: list[Delivery] = []
    sending = Sending(Marking())
    delivery = sending.send("t", b"v", partition=0, on_delivery=called.append)
    sending.settle()
    assert [each.result(0) for each in called] == [delivery.result(0)]


def test_class_with_batch_forms_alone_leaves_send_as_it_is() -> None:
    sending = Sending(MarkingBatches())
    assert sending.send == sending.plain_send


def test_batch_form_is_called_once_for_send_many() -> None:
    marking = MarkingBatches()
    sending = Sending(marking)
    sending.send_many([b"a", b"b", b"c"], keys=[b"k", None, b"k"], headers=[{"mine": b"1"}, (), ()])
    assert marking.sizes == [3]
    assert {record.value: record.headers for record in sending.sent()} == {
        b"a": (("mine", b"1"), MARK),
        b"b": (MARK,),
        b"c": (MARK,),
    }


def test_record_form_is_called_for_each_record_of_send_many_and_send_arrow() -> None:
    marking = Marking()
    sending = Sending(marking)
    sending.send_many([b"a", b"b"], timestamps_ms=[1, 2])
    sending.send_arrow(pa.table({"value": [b"c", None], "key": [b"k", b"k"], "at": [3, 4]}), key="key", timestamp="at")
    assert marking.calls == 4
    assert sorted((record.timestamp_ms, record.value, record.headers) for record in sending.sent()) == [
        (1, b"a", (MARK,)),
        (2, b"b", (MARK,)),
        (3, b"c", (MARK,)),
        (4, None, (MARK,)),
    ]


def test_rows_stay_columns_where_an_interceptor_only_looks_at_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class Counting(ProducerInterceptor):
        def on_send_batch(self, batch: SendBatch) -> None:
            sizes.append(len(batch))

    monkeypatch.setattr(Accumulator, "append", fail)  # of single records
    sending = Sending(Counting())
    sending.send_arrow(pa.table({"value": [b"a", b"b"]}), partition=1)
    sending.send_many([b"c"], partition=1)
    assert sizes == [2, 1]
    assert [record.value for record in sending.sent()] == [b"a", b"b", b"c"]


def test_headers_may_be_added_to_rows() -> None:
    sending = Sending(MarkingBatches())
    sending.send_arrow(pa.table({"value": ["a", "b"]}), partition=1)
    assert [(record.value, record.headers) for record in sending.sent()] == [(b"a", (MARK,)), (b"b", (MARK,))]


@pytest.mark.parametrize(
    "replace",
    [
        fail,
        lambda batch: batch.records(),
        lambda batch: batch.with_records(batch.records()[:-1]),
        lambda batch: batch.with_records([record._replace(topic="u") for record in batch.records()]),
        lambda batch: batch.with_headers(("name", 7)),
    ],
)
def test_exception_or_invalid_batch_leaves_the_batch_and_is_logged_once(
    replace: Callable[[SendBatch], Any], caplog: pytest.LogCaptureFixture
) -> None:
    class ReplacingBatches(ProducerInterceptor):
        def on_send_batch(self, batch: SendBatch) -> SendBatch | None:
            made: SendBatch | None = replace(batch)
            return made

    sending = Sending(ReplacingBatches(), Marking())
    for values in ([b"a", b"b"], [b"c"]):
        sending.send_many(values, partition=0)
    assert [(record.value, record.headers) for record in sending.sent()] == [
        (value, (MARK,)) for value in (b"a", b"b", b"c")
    ]
    assert len(caplog.records) == 1


# --- outcomes ---


class Outcomes(ProducerInterceptor):
    def __init__(self) -> None:
        self.seen: list[tuple[Record, BarnabasError | None]] = []

    def on_delivery(self, record: Record, error: BarnabasError | None) -> None:
        self.seen.append((record, error))


def test_on_delivery_gets_each_record_with_its_offset_and_headers() -> None:
    outcomes = Outcomes()
    sending = Sending(outcomes)
    for number in range(3):
        sending.send("t", b"%d" % number, partition=1, headers=[MARK])
    sending.settle()
    assert [(record.offset, record.value, error) for record, error in outcomes.seen] == [
        (100 + number, b"%d" % number, None) for number in range(3)
    ]
    assert {(record.topic, record.partition, record.headers) for record, _ in outcomes.seen} == {("t", 1, (MARK,))}


def test_on_delivery_gets_the_error_of_records_that_were_not_delivered() -> None:
    outcomes = Outcomes()
    sending = Sending(outcomes)
    sending.send_many([b"a", b"b"], partition=1)
    error = TimedOutError("too late")
    sending.settle(error)
    assert [(record.offset, record.value, why) for record, why in outcomes.seen] == [
        (-1, b"a", error), (-1, b"b", error)
    ]  # fmt: skip


def test_on_delivery_batch_gets_whole_batches() -> None:
    seen: list[tuple[object, ...]] = []

    class Batches(ProducerInterceptor):
        def on_delivery_batch(self, batch: SentBatch, error: BarnabasError | None) -> None:
            seen.append((batch.topic, batch.partition, batch.count, batch.base_offset, error))

        def on_delivery(self, record: Record, error: BarnabasError | None) -> None:
            raise AssertionError("the batch form stands in its place")

    sending = Sending(Batches())
    sending.send_many([b"a", b"b"], partition=2)
    sending.settle()
    assert seen == [("t", 2, 2, 100, None)]


# --- records that the producer refuses ---

TOO_LARGE = bytes(20_000)


def refused(outcomes: Outcomes) -> list[tuple[bytes | None, int, int, str]]:
    """Return value, partition and offset of each record, and its error."""
    return [
        (record.value, record.partition, record.offset, str(error)[:17]) for record, error in outcomes.seen if error
    ]


def test_on_delivery_gets_a_record_that_send_refuses_as_on_send_returned_it() -> None:
    outcomes = Outcomes()
    sending = Sending(Marking(), outcomes)
    with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE") as raised:
        sending.send("t", TOO_LARGE, b"k", partition=2, timestamp_ms=5)
    [(record, error)] = outcomes.seen
    assert error is raised.value
    assert record == Record("t", 2, -1, 5, TimestampType.CREATE_TIME, b"k", TOO_LARGE, (MARK,))


def test_caller_gets_the_error_of_an_oversized_record_and_no_hook_is_blamed(caplog: pytest.LogCaptureFixture) -> None:
    sending = Sending(Marking())
    with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
        sending.send("t", TOO_LARGE)
    with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
        sending.send_many([b"a", TOO_LARGE], partition=1)
    assert [(record.value, record.headers) for record in sending.sent()] == [(b"a", (MARK,))]
    assert caplog.records == []


def test_on_delivery_gets_what_a_closed_producer_and_full_memory_refuse() -> None:
    outcomes = Outcomes()
    sending = Sending(outcomes)
    values = [bytes([number]) * 4_000 for number in range(30)]
    with pytest.raises(BufferFullError):
        sending.send_many(values, partition=0)
    sent = [record.value for record in sending.sent()]
    assert 0 < len(sent) < len(values)
    assert sent + [value for value, *_ in refused(outcomes)] == values
    outcomes.seen.clear()
    sending.accumulator.refuse(ClosedError("closed for the test"))
    with pytest.raises(ClosedError):
        sending.send("t", b"late")
    assert refused(outcomes) == [(b"late", -1, -1, "closed for the te")]


@pytest.mark.parametrize("is_columns", [False, True])
def test_each_record_of_a_call_is_in_a_batch_or_refused(is_columns: bool) -> None:
    outcomes = Outcomes()
    sending = Sending(outcomes)
    values = [b"%d" % number for number in range(20)]
    values[11] = TOO_LARGE
    keys = [b"key %d" % (number % 7) for number in range(20)]
    send = partial(sending.send_many, values, keys=keys)
    if is_columns:
        send = partial(sending.send_arrow, pa.table({"value": values, "key": keys}), key="key")
    with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
        send()
    sent = {record.value for record in sending.sent()}
    missing = [value for value, *_ in refused(outcomes)]
    assert TOO_LARGE in missing
    assert missing == [value for value in values if value not in sent]
    assert len(sent) + len(missing) == len(values)


def test_exception_of_the_partitioner_is_the_cause_of_the_error() -> None:
    outcomes = Outcomes()
    sending = Sending(outcomes, partitioner=fail)
    with pytest.raises(RuntimeError, match="planted") as raised:
        sending.send("t", b"v", b"k")
    with pytest.raises(RuntimeError, match="planted"):
        sending.send_many([b"a", b"b"], keys=[b"k", b"k"])
    errors = [error for _, error in outcomes.seen]
    assert [type(error) for error in errors] == [BarnabasError] * 3
    assert errors[0] is not None
    assert errors[0].__cause__ is raised.value
    assert [record.value for record, _ in outcomes.seen] == [b"v", b"a", b"b"]


def test_class_with_both_forms_gets_refused_records_one_by_one() -> None:
    class Both(Outcomes):
        def on_delivery_batch(self, batch: SentBatch, error: BarnabasError | None) -> None:
            batches.append(batch.count)

    batches: list[int] = []
    both = Both()
    sending = Sending(both)
    with pytest.raises(ApiError):
        sending.send_many([b"a", b"b", TOO_LARGE], partition=0)
    sending.settle()
    assert batches == [2]
    assert refused(both) == [(TOO_LARGE, 0, -1, "MESSAGE_TOO_LARGE")]


def test_audit_neither_counts_refused_records_nor_keeps_send_from_being_compiled() -> None:
    audit = ProducerAudit()
    every = ProducerInterceptors([audit])
    assert not any([every.see_send, every.see_batches])
    counted: list[int] = []
    audit._count = lambda batch, error: counted.append(batch.count)  # type: ignore[method-assign]
    sending = Sending(audit)
    assert sending.send == sending.plain_send
    with pytest.raises(ApiError):
        sending.send("t", TOO_LARGE)
    with pytest.raises(ApiError):
        sending.send_many([b"a", b"b", TOO_LARGE, b"c"], partition=0)
    sending.settle()
    assert counted == [2]


@pytest.mark.parametrize("hook", ["on_delivery", "on_delivery_batch"])
def test_exception_of_a_delivery_hook_changes_no_outcome(
    hook: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(ProducerInterceptor):
        pass

    setattr(Failing, hook, fail)
    outcomes = Outcomes()
    sending = Sending(Failing(), outcomes)
    for _ in range(2):
        delivery = sending.send("t", b"v", partition=1)
        sending.settle()
        assert delivery.result(0).offset == 100
    assert len(outcomes.seen) == 2
    (line,) = caplog.records
    assert f"in {hook};" in line.getMessage()


def test_another_type_of_exception_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    errors = [RuntimeError("one"), RuntimeError("again"), ValueError("other")]

    class Failing(ProducerInterceptor):
        def on_delivery(self, record: Record, error: BarnabasError | None) -> None:
            raise errors.pop(0)

    sending = Sending(Failing())
    sending.send_many([b"a", b"b", b"c"], partition=0)
    sending.settle()
    assert [line.exc_info[0] for line in caplog.records if line.exc_info] == [RuntimeError, ValueError]


def test_slow_delivery_hook_does_not_hold_up_send() -> None:
    entered, may_go = threading.Event(), threading.Event()

    class Slow(ProducerInterceptor):
        def on_delivery_batch(self, batch: SentBatch, error: BarnabasError | None) -> None:
            entered.set()
            assert may_go.wait(60)

    sending = Sending(Slow())
    sending.send("t", b"first", partition=0)
    settling = threading.Thread(target=sending.settle)
    settling.start()
    try:
        assert entered.wait(60)
        sending.send("t", b"second", partition=0)
        assert [record.value for record in sending.sent()] == [b"second"]
    finally:
        may_go.set()
        settling.join(60)


# --- lives ---


CONTEXT: Any = SimpleNamespace(client_id="shop")


@pytest.mark.parametrize(
    ("base", "every"), [(ProducerInterceptor, ProducerInterceptors), (ConsumerInterceptor, ConsumerInterceptors)]
)
def test_lives_begin_and_end_once_and_in_order(base: Any, every: Any) -> None:
    seen: list[str] = []

    class Waiting(base):  # type: ignore[misc]
        async def start(self, context: ClientContext) -> None:
            await asyncio.sleep(0)
            seen.append(f"start of {context.client_id}")

        async def close(self, timeout_s: float | None) -> None:
            await asyncio.sleep(0)
            seen.append(f"close within {timeout_s}")

    class Plain(base):  # type: ignore[misc]
        def start(self, context: ClientContext) -> None:
            seen.append("plain start")

        def close(self, timeout_s: float | None) -> None:
            seen.append("plain close")

    async def live() -> None:
        interceptors = every([Waiting(), Plain()])
        await interceptors.close()
        await interceptors.start(CONTEXT)
        await interceptors.close(3.0)
        await interceptors.close()

    loop = SimulatedLoop()
    try:
        loop.run_until_complete(live())
    finally:
        loop.close()
    assert seen == ["start of shop", "plain start", "close within 3.0", "plain close"]


@pytest.mark.parametrize("hook", ["start", "flush", "close"])
def test_hook_that_never_ends_is_cancelled_and_the_next_one_called(
    hook: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(interceptors_module, "GRACE_S", 0.01)
    monkeypatch.setattr(interceptors_module, "WAIT_S_MAX", 0.01)
    called: list[str] = []

    class Endless(ProducerInterceptor):
        pass

    class Next(ProducerInterceptor):
        pass

    async def wait(_self: object, _argument: object) -> None:
        await asyncio.Event().wait()

    setattr(Endless, hook, wait)
    setattr(Next, hook, lambda _self, _argument: called.append(hook))

    async def live() -> None:
        interceptors = ProducerInterceptors([Endless(), Next()])
        await interceptors.start(CONTEXT)
        await interceptors.flush(0.0)
        await interceptors.close(0.0)

    asyncio.run(live())
    assert called == [hook]
    assert [line.getMessage().split(";")[0] for line in caplog.records] == [
        f"interceptor {Endless.__qualname__} raised TimeoutError('not done after 0.01 s') in {hook}"
    ]


@pytest.mark.parametrize("every", [ProducerInterceptors, ConsumerInterceptors])
def test_object_of_another_kind_is_refused(every: Any) -> None:
    with pytest.raises(ConfigurationError, match="interceptors are instances of"):
        every([object()])


# --- reading ---


class Reading(ConsumerInterceptor):
    def __init__(self) -> None:
        self.records: list[Record] = []

    def on_records(self, records: Sequence[Record]) -> None:
        self.records += records


class ReadingBatches(ConsumerInterceptor):
    def __init__(self) -> None:
        self.batches: list[tuple[TopicPartition, int, int]] = []
        self.moves: list[Mapping[TopicPartition, int | None]] = []

    def on_records_batch(self, batch: FetchedBatch) -> None:
        self.batches.append((batch.partition, batch.position, len(batch)))

    def on_reposition(self, reached: Mapping[TopicPartition, int | None]) -> None:
        self.moves.append(reached)


def reading(*interceptors: ConsumerInterceptor, **settings: Any) -> Scene:
    scene = Scene(partitions=1, interceptors=interceptors, **settings)
    scene.core.assign([(TOPIC, 0)])
    return scene


HERE = TopicPartition(TOPIC, 0)


def test_on_records_gets_records_before_the_deserializer() -> None:
    interceptor = Reading()
    scene = reading(interceptor, value_deserializer=lambda value: value.decode().upper())
    scene.deliver(count=3)
    assert [record.value for record in scene.poll(timeout_s=0).result] == ["0/0", "0/1", "0/2"]
    assert [record.value for record in interceptor.records] == [b"0/0", b"0/1", b"0/2"]


def test_on_records_gets_the_records_of_columns_that_were_added() -> None:
    interceptor = Reading()
    scene = reading(interceptor)
    scene.deliver(count=5)
    assert scene.call(scene.core.poll_columns(2, 0)).result.num_rows == 2
    assert [record.offset for record in interceptor.records] == [0, 1]
    assert scene.call(scene.core.poll_columns(10, 0)).result.num_rows == 3
    assert [record.offset for record in interceptor.records] == [0, 1, 2, 3, 4]


def test_on_records_batch_gets_chunks_in_all_ways_of_reading() -> None:
    interceptor = ReadingBatches()
    scene = reading(interceptor)
    scene.deliver(count=5)
    assert scene.call(scene.core.poll_columns(2, 0)).result.num_rows == 2
    assert len(scene.poll(records_max=3, timeout_s=0).result) == 3
    assert interceptor.batches == [(HERE, 0, 2), (HERE, 2, 3)]


def test_stretches_of_a_batch_name_windows_without_objects() -> None:
    found: list[list[tuple[int, int, int]]] = []

    class Windows(ConsumerInterceptor):
        def on_records_batch(self, batch: FetchedBatch) -> None:
            found.append(batch.stretches(60_000))

    scene = reading(Windows())
    scene.deliver(count=5)
    scene.call(scene.core.poll_columns(2, 0))
    scene.poll(timeout_s=0)
    assert found == [[(0, 2, 0)], [(2, 3, 0)]]


def test_on_reposition_says_how_far_the_application_is() -> None:
    interceptor = ReadingBatches()
    scene = reading(interceptor)
    scene.deliver(count=5)
    assert len(scene.poll(records_max=2, timeout_s=0).result) == 2
    assert scene.context().positions() == {HERE: 2}
    scene.core.seek((TOPIC, 0), 1)
    assert interceptor.moves == [{HERE: 2}]
    scene.core.assign([])
    assert interceptor.moves == [{HERE: 2}, {HERE: 1}]


@pytest.mark.parametrize("hook", ["on_records", "on_records_batch", "on_reposition"])
@pytest.mark.parametrize("way", ["poll", "poll_columns"])
def test_exception_of_a_reading_hook_changes_nothing(hook: str, way: str, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(ConsumerInterceptor):
        pass

    setattr(Failing, hook, fail)
    after = Reading()
    scene = reading(Failing(), after)
    scene.deliver(count=4)
    for records_max in (2, 2):
        assert len(scene.call(getattr(scene.core, way)(records_max, 0)).result) == 2
    scene.core.seek((TOPIC, 0), 2)
    scene.answer(scene.fetch(), count=2)
    assert len(scene.call(getattr(scene.core, way)(10, 0)).result) == 2
    assert [record.offset for record in after.records] == [0, 1, 2, 3, 2, 3]
    (line,) = caplog.records
    assert f"in {hook};" in line.getMessage()
