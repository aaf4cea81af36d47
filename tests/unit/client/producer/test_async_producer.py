"""The producer on an event loop, over a broker that is a function and answers when the test says so."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from barnabas.client.interceptors import ProducerInterceptor
from barnabas.client.producer import engine
from barnabas.client.producer.async_producer import AsyncProducer
from barnabas.client.producer.producer import Producer
from barnabas.errors import (
    ApiError,
    BufferFullError,
    ClosedError,
    ConfigurationError,
    DisconnectedError,
    ErrorCode,
    TimedOutError,
)
from barnabas.model import RecordMetadata
from barnabas.protocol.codec import EncodedRequest, decode
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.records import read_records


class FakeBroker:
    """One broker and the channel to it; produce requests are answered at once, or when `answer` is called."""

    def __init__(self):
        self.is_open = True
        self.unsent_bytes = 0
        self.on_progress = None
        self.lookups = 0
        self.requests = []
        self.waiting = []
        self.answers_at_once = True
        self.log = {0: [], 1: []}

    async def dial(self, host, port):
        return self

    def version_for(self, request):
        return 9

    async def send(self, request, *, version=None, timeout_s=30.0):
        self.lookups += 1
        await asyncio.sleep(0)
        topics = [
            MetadataResponseTopic(
                error_code=ErrorCode.INVALID_TOPIC_EXCEPTION if topic.name == "bad" else 0,
                name=topic.name,
                partitions=[
                    MetadataResponsePartition(
                        error_code=0, partition_index=each, leader_id=1, replica_nodes=[1], isr_nodes=[1]
                    )
                    for each in range(0 if topic.name == "bad" else 2)
                ],
            )
            for topic in request.topics
        ]
        return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="a", port=1)], topics=topics)

    def submit(self, request, on_answer, *, version=None, timeout_s=30.0):
        if isinstance(request, EncodedRequest):
            request = decode(request.cls, request.body, version)
        self.requests.append(request)
        self.waiting.append((request, on_answer))

    def flush(self):
        if self.answers_at_once:
            asyncio.get_running_loop().call_soon(self.answer)

    def answer(self, error=None):
        """Answer all requests that wait."""
        waiting, self.waiting = self.waiting, []
        for request, on_answer in waiting:
            on_answer(None if error else ProduceResponse(responses=[self._store(request)]), error)
        self.on_progress()

    def _store(self, request):
        [topic] = request.topic_data
        answers = []
        for data in topic.partition_data:
            log = self.log[data.index]
            answers.append(PartitionProduceResponse(index=data.index, error_code=0, base_offset=len(log)))
            log += [record.value for record in read_records(data.records, topic.name, data.index)]
        return TopicProduceResponse(name=topic.name, partition_responses=answers)

    def close(self):
        self.is_open = False


def run(monkeypatch, test, **settings):
    """Run `test(producer, broker)` with a producer that has been started."""
    broker = FakeBroker()
    monkeypatch.setattr(engine, "dial_with", lambda config: broker.dial)

    async def main():
        async with asyncio.timeout(60):
            producer = AsyncProducer("a:1", **({"acks": 1} | settings))
            try:
                await test(producer, broker)
            finally:
                broker.answers_at_once = True
                if broker.waiting:
                    broker.answer()
                await producer.close(timeout_s=1)

    asyncio.run(main())


async def until(condition):
    """Let the other tasks run until `condition()`."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not come true")


def test_a_delivery_is_awaited_for_the_place_of_the_record(monkeypatch):
    async def test(producer, broker):
        delivery = await producer.send("t", b"v", partition=1, timestamp_ms=77)
        assert not delivery.done()
        assert await delivery == RecordMetadata("t", 1, 0, 77)

    run(monkeypatch, test)


def test_many_records_are_sent_in_one_call_and_awaited_together(monkeypatch):
    async def test(producer, broker):
        deliveries = await producer.send_many("t", [b"a", b"b", b"c"], partition=0)
        assert [each.offset for each in await deliveries] == [0, 1, 2]
        keyed = await producer.send_many("t", [b"d", b"e"], keys=[b"k", b"k"])
        assert len({each.partition for each in await keyed}) == 1
        with pytest.raises(ValueError, match="1 keys for 2 values"):
            await producer.send_many("t", [b"d", b"e"], keys=[b"k"])

    run(monkeypatch, test)


def test_a_failure_is_raised_where_the_delivery_is_awaited(monkeypatch):
    async def test(producer, broker):
        broker.answers_at_once = False
        delivery = await producer.send("t", b"v")
        await until(lambda: broker.waiting)
        broker.answer(DisconnectedError("gone"))
        with pytest.raises(DisconnectedError, match="gone"):
            await delivery

    run(monkeypatch, test, retries=0)


def test_records_of_tasks_that_run_together_travel_together(monkeypatch):
    async def test(producer, broker):
        await producer.partitions_for("t")

        async def deliver(number):
            return await (await producer.send("t", b"%d" % number, partition=0))

        places = await asyncio.gather(*(deliver(number) for number in range(500)))
        assert [place.offset for place in places] == list(range(500))
        assert len(broker.requests) <= 2

    run(monkeypatch, test)


def test_tasks_that_ask_for_a_new_topic_look_it_up_once(monkeypatch):
    async def test(producer, broker):
        await asyncio.gather(*(producer.send("t", b"v") for _ in range(50)))
        assert broker.lookups <= 2
        assert await producer.partitions_for("t") == [0, 1]

    run(monkeypatch, test)


def test_a_topic_that_cannot_be_had_raises_for_all_who_ask(monkeypatch):
    async def test(producer, broker):
        outcomes = await asyncio.gather(*(producer.send("bad", b"v") for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in outcomes] == [ApiError] * 3
        with pytest.raises(ConfigurationError, match="non-empty"):
            await producer.send("", b"v")

    run(monkeypatch, test)


SMALL_MEMORY = {"buffer_memory": 2000, "batch_size": 1000, "max_request_size": 1000}


def test_full_memory_is_awaited_without_blocking_the_loop_and_nobody_overtakes(monkeypatch):
    async def test(producer, broker):
        broker.answers_at_once = False
        await producer.send_many("t", [bytes(900)] * 2, partition=0)
        order = []

        async def send(number):
            await producer.send("t", b"%d" % number * 100, partition=0)
            order.append(number)

        tasks = [asyncio.create_task(send(number)) for number in range(5)]
        await until(lambda: len(broker.waiting) == 2)
        assert not order
        broker.answer()
        broker.answers_at_once = True
        await asyncio.gather(*tasks)
        assert order == [0, 1, 2, 3, 4]
        await producer.flush()
        assert broker.log[0][2:] == [b"%d" % number * 100 for number in range(5)]

    run(monkeypatch, test, **SMALL_MEMORY)


def test_more_than_fits_into_memory_is_sent_in_one_call(monkeypatch):
    async def test(producer, broker):
        values = [b"%d" % number * 100 for number in range(200)]
        await (await producer.send_many("t", values, partition=0))
        assert broker.log[0] == values

    run(monkeypatch, test, **SMALL_MEMORY)


def test_memory_that_stays_full_raises(monkeypatch):
    async def test(producer, broker):
        broker.answers_at_once = False
        await producer.send_many("t", [bytes(900)] * 2, partition=0)
        with pytest.raises(BufferFullError, match="of 2000 bytes"):
            await producer.send("t", bytes(100), partition=0)

    run(monkeypatch, test, max_block_ms=20, **SMALL_MEMORY)


def test_a_send_that_is_cancelled_while_it_waits_has_sent_nothing_and_lets_the_next_in(monkeypatch):
    async def test(producer, broker):
        broker.answers_at_once = False
        await producer.send_many("t", [bytes(900)] * 2, partition=0)
        first = asyncio.create_task(producer.send("t", bytes(100), partition=0))
        second = asyncio.create_task(producer.send("t", b"2" * 100, partition=0))
        await until(lambda: len(broker.waiting) == 2)
        first.cancel()
        broker.answers_at_once = True
        broker.answer()
        await (await second)
        assert first.cancelled()
        assert broker.log[0][2:] == [b"2" * 100]

    run(monkeypatch, test, **SMALL_MEMORY)


class Outcomes(ProducerInterceptor):
    def __init__(self):
        self.failed = []

    def on_delivery(self, record, error):
        if error is not None:
            self.failed.append((record.value, error))


def test_interceptors_see_records_of_cancelled_and_refused_calls(monkeypatch):
    outcomes = Outcomes()

    async def test(producer, broker):
        broker.answers_at_once = False
        await producer.send_many("t", [bytes(900)] * 2, partition=0)
        calls = [
            asyncio.create_task(producer.send("t", b"1" * 100, partition=0)),
            asyncio.create_task(producer.send_many("t", [b"2" * 100, b"3" * 100], partition=0)),
        ]
        await until(lambda: len(broker.waiting) == 2)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert sorted(value[:1] for value, _ in outcomes.failed) == [b"1", b"2", b"3"]
        assert all(isinstance(error.__cause__, asyncio.CancelledError) for _, error in outcomes.failed)
        outcomes.failed.clear()
        with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
            await producer.send("t", bytes(1500))
        with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
            await producer.send_many("t", [bytes(1500), b"x"])
        broker.answer()
        await producer.close()
        with pytest.raises(ClosedError):
            await producer.send("t", b"late")
        assert [value[-4:] for value, _ in outcomes.failed] == [bytes(4), bytes(4), b"x", b"late"]

    run(monkeypatch, test, interceptors=[outcomes], **SMALL_MEMORY)


def test_cancelling_the_wait_for_a_delivery_leaves_the_record_on_its_way(monkeypatch):
    async def test(producer, broker):
        broker.answers_at_once = False
        delivery = await producer.send("t", b"v", partition=0)

        async def wait():
            await delivery

        waiter = asyncio.create_task(wait())
        await until(lambda: broker.waiting)
        waiter.cancel()
        broker.answer()
        assert (await delivery).offset == 0

    run(monkeypatch, test)


def test_cancelling_one_who_asks_for_a_topic_leaves_the_others_their_answer(monkeypatch):
    async def test(producer, broker):
        first = asyncio.create_task(producer.send("t", b"v"))
        second = asyncio.create_task(producer.send("t", b"v"))
        await asyncio.sleep(0)
        first.cancel()
        await (await second)

    run(monkeypatch, test)


def test_a_flood_of_sends_lets_others_on_the_loop_have_their_turn(monkeypatch):
    async def test(producer, broker):
        await producer.partitions_for("t")
        turns = []

        async def count():
            while True:
                turns.append(1)
                await asyncio.sleep(0)

        counter = asyncio.create_task(count())
        for _ in range(20_000):
            await producer.send("t", bytes(100), partition=0)
        counter.cancel()
        assert len(turns) > 5

    run(monkeypatch, test)


def test_flush_waits_for_what_was_sent_and_says_what_is_missing(monkeypatch):
    async def test(producer, broker):
        await producer.flush()
        broker.answers_at_once = False
        delivery = await producer.send("t", b"v")
        with pytest.raises(TimedOutError, match=r"1 records were still on their way after 0\.01 s"):
            await producer.flush(0.01)
        await until(lambda: broker.waiting)
        broker.answer()
        await producer.flush(1)
        assert delivery.done()

    run(monkeypatch, test)


def test_close_flushes_and_refuses_what_comes_later(monkeypatch):
    async def test(producer, broker):
        delivery = await producer.send("t", b"v")
        await producer.close()
        assert delivery.done()
        assert not broker.is_open
        for topic in ("t", "new"):
            with pytest.raises(ClosedError, match="closed"):
                await producer.send(topic, b"v")
        await producer.close()

    run(monkeypatch, test)


def test_close_leaves_no_task_behind(monkeypatch):
    async def test(producer, broker):
        await producer.send("t", b"v")
        await producer.close()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(monkeypatch, test)


def test_close_wakes_who_waits_for_memory(monkeypatch):
    async def test(producer, broker):
        broker.answers_at_once = False
        await producer.send_many("t", [bytes(900)] * 2, partition=0)
        sending = asyncio.create_task(producer.send("t", bytes(100), partition=0))
        await until(lambda: len(broker.waiting) == 2)
        closing = asyncio.create_task(producer.close())
        with pytest.raises(ClosedError):
            await sending
        broker.answer()
        await closing

    run(monkeypatch, test, **SMALL_MEMORY)


def test_a_producer_that_can_learn_of_no_leaders_any_more_says_so(monkeypatch):
    async def test(producer, broker):
        await producer.send("t", b"v")
        broker.answers_at_once = False
        delivery = await producer.send("t", b"v")

        async def fail():
            raise ValueError("bug")

        producer._engine._cluster.refresh = fail
        producer._engine._cluster.request_refresh()
        with pytest.raises(ClosedError, match=r"stopped because of ValueError\('bug'\)"):
            await delivery
        with pytest.raises(ClosedError, match="stopped because of ValueError"):
            await producer.send("t", b"v")
        broker.waiting.clear()

    run(monkeypatch, test)


def test_who_is_not_the_first_to_close_waits_until_it_is_done(monkeypatch):
    async def test(producer, broker):
        broker.answers_at_once = False
        delivery = await producer.send("t", b"v")
        first = asyncio.create_task(producer.close())
        await until(lambda: broker.waiting)
        second = asyncio.create_task(producer.close())
        with pytest.raises(TimedOutError, match="1 records were still on their way"):
            await producer.close(timeout_s=0.01)
        assert not second.done()
        broker.answer()
        await second
        assert first.done()
        assert delivery.done()
        assert not broker.is_open
        await producer.close()

    run(monkeypatch, test)


def test_who_waits_for_a_close_that_is_cancelled_waits_no_longer(monkeypatch):
    async def test(producer, broker):
        broker.answers_at_once = False
        await producer.send("t", b"v")
        first, second = (asyncio.create_task(producer.close()) for _ in range(2))
        await until(lambda: broker.waiting)
        first.cancel()
        await second
        assert first.done()
        broker.waiting.clear()

    run(monkeypatch, test)


def test_on_delivery_gets_the_delivery_of_its_record(monkeypatch):
    async def test(producer, broker):
        delivered = []
        first = await producer.send("t", b"v", partition=0, on_delivery=delivered.append)
        second = await producer.send("t", b"w", partition=0, on_delivery=delivered.append)
        await producer.flush()
        assert delivered == [first, second]
        assert [each.result().offset for each in delivered] == [0, 1]
        with pytest.raises(ApiError):
            await producer.send("bad", b"v", on_delivery=delivered.append)
        assert len(delivered) == 2

    run(monkeypatch, test)


def test_what_close_gives_up_fails(monkeypatch):
    async def test(producer, broker):
        broker.answers_at_once = False
        delivery = await producer.send("t", b"v")
        with pytest.raises(TimedOutError, match="on their way"):
            await producer.close(timeout_s=0.01)
        with pytest.raises(TimedOutError, match="closed before the record was acknowledged"):
            await delivery
        broker.waiting.clear()

    run(monkeypatch, test)


class Closes(ProducerInterceptor):
    """Notes the limits that `close` gets."""

    def __init__(self):
        self.limits_s = []

    def close(self, timeout_s):
        self.limits_s.append(timeout_s)


def test_interceptors_close_within_what_is_left_of_the_time(monkeypatch):
    async def test(producer, broker):
        await producer.send("t", b"v")
        await producer.close(timeout_s=500)

    async def without_limit(producer, broker):
        await producer.send("t", b"v")
        await producer.close()

    async def cut_off(producer, broker):
        broker.answers_at_once = False
        await producer.send("t", b"v")
        with pytest.raises(TimedOutError, match="on their way"):
            await producer.close(timeout_s=0.01)
        broker.waiting.clear()

    limits_s = []
    for scenario in (test, without_limit, cut_off):
        closes = Closes()
        run(monkeypatch, scenario, interceptors=[closes])
        limits_s += closes.limits_s
    left_s, none, nothing = limits_s
    assert 0 < left_s < 500
    assert none is None
    assert nothing == 0


def test_producer_with_a_thread_closes_its_interceptors_within_its_time(monkeypatch):
    broker, closes = FakeBroker(), Closes()
    monkeypatch.setattr(engine, "dial_with", lambda config: broker.dial)
    with Producer("a:1", acks=1, interceptors=[closes]) as producer:
        producer.send("t", b"v").result(60)
        producer.close(timeout_s=0)
    assert closes.limits_s == [0]


def test_a_close_that_is_cancelled_says_what_is_lost(monkeypatch, caplog):
    async def test(producer, broker):
        broker.answers_at_once = False
        await producer.send_many("t", [b"v"] * 3)
        await until(lambda: broker.waiting)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        broker.waiting.clear()

    run(monkeypatch, test)
    assert "closing the producer was cancelled: 3 records" in caplog.text


def test_the_end_of_the_loop_without_close_says_what_is_lost(monkeypatch, caplog):
    broker = FakeBroker()
    broker.answers_at_once = False
    monkeypatch.setattr(engine, "dial_with", lambda config: broker.dial)
    producers = []

    async def main():
        producer = AsyncProducer("a:1", acks=1)
        producers.append(producer)
        await producer.send("t", b"v")

    asyncio.run(main())
    assert "the event loop ended before" in caplog.text
    with pytest.raises(ClosedError, match="event loop of this producer has ended"):
        asyncio.run(producers[0].send("t", b"v"))


def test_tasks_that_wait_for_one_lookup_get_an_exception_each(monkeypatch):
    async def test(producer, broker):
        sends = [producer.send("bad", b"v") for _ in range(3)]
        errors = await asyncio.gather(*sends, return_exceptions=True)
        assert all(isinstance(each, ApiError) for each in errors)
        assert len(set(map(id, errors))) == 3
        assert broker.lookups == 1

    run(monkeypatch, test)


def test_a_producer_that_is_dropped_delivers_what_was_sent_and_warns(monkeypatch):
    broker = FakeBroker()
    monkeypatch.setattr(engine, "dial_with", lambda config: broker.dial)

    async def main():
        producer = AsyncProducer("a:1", acks=1, linger_ms=1000)
        delivery = await producer.send("t", b"v", partition=0)
        with pytest.warns(ResourceWarning, match="an AsyncProducer was dropped"):
            del producer
        assert (await delivery).offset == 0
        await until(lambda: not broker.is_open)

    asyncio.run(main())
    assert broker.log[0] == [b"v"]


def test_a_producer_that_is_closed_in_a_forked_child_stays_as_it_was(monkeypatch):
    async def test(producer, broker):
        await producer.send("t", b"v")
        assert exit_code_of_child(producer.close(), told=False) == 0
        assert broker.is_open
        await (await producer.send("t", b"v"))

    run(monkeypatch, test)


def test_serializers_make_bytes_of_what_is_sent(monkeypatch):
    async def test(producer, broker):
        await producer.send("t", {"a": 1}, "k", partition=0)
        await producer.send("t", None, partition=0)
        await (await producer.send_many("t", [[1], 2], keys=["k", None], partition=0))
        assert broker.log[0] == [b'{"a": 1}', None, b"[1]", b"2"]

    run(monkeypatch, test, key_serializer=str.encode, value_serializer=lambda value: json.dumps(value).encode())


def test_what_a_serializer_raises_reaches_the_caller_with_the_topic(monkeypatch):
    async def test(producer, broker):
        with pytest.raises(KeyError) as raised:
            await producer.send("t", b"v")
        assert raised.value.__notes__ == ["value_serializer raised this error for a record of topic 't'"]
        assert producer.metrics()["unfinished_records"] == 0

    run(monkeypatch, test, value_serializer={}.__getitem__)


def test_metrics_tell_what_was_delivered_and_what_waits(monkeypatch):
    async def test(producer, broker):
        await (await producer.send_many("t", [b"v"] * 3, partition=0))
        broker.answers_at_once = False
        await producer.send("t", b"left", partition=0)
        await until(lambda: broker.waiting)
        figures = producer.metrics()
        assert figures["records_total"] == figures["records_per_batch_avg"] == 3
        assert figures["requests_total"] == figures["requests_in_flight"] == figures["unfinished_records"] == 1
        assert 0 < figures["buffered_bytes"] < 1000 < figures["buffer_available_bytes"]
        assert figures["records_per_s"] > 0
        assert figures["bytes_total"] > 3
        broker.answer(DisconnectedError("gone"))
        assert producer.metrics()["retries_total"] == 1

    run(monkeypatch, test, retry_backoff_ms=0)


def test_a_forked_child_is_told_that_the_producer_is_not_its_own(monkeypatch):
    async def test(producer, broker):
        await producer.send("t", b"v")
        assert exit_code_of_child(producer.send("t", b"v")) == 0
        await (await producer.send("t", b"v"))

    run(monkeypatch, test)


def exit_code_of_child(sending, told=True):
    """Fork, go on with a coroutine in the child, and return 0 if that is told what is wrong, or not."""
    child = os.fork()
    if child:
        sending.close()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        while True:
            sending.send(None)
    except ClosedError as error:
        code = 0 if told and "is a fork" in str(error) else 2
    except StopIteration:
        code = 3 if told else 0
    finally:
        os._exit(code)
