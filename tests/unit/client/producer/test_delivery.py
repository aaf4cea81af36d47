"""What deliveries say about their records."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client.producer.accumulator import ProducerBatch, run_callbacks
from barnabas.client.producer.delivery import Deliveries, Delivery
from barnabas.errors import ApiError, ErrorCode, TimedOutError
from barnabas.model import RecordMetadata
from barnabas.records import BatchBuilder


class Waiter:
    def wait(self, batch, timeout_s):
        return batch.done

    def when_done(self, batch, callback):
        if batch.done:
            callback()
        else:
            batch.callbacks = [callback]

    def stop_lingering(self, batch):
        batch.urgent = True


def make_batch(count=3, partition=0):
    builder = BatchBuilder()
    builder.append_many(0, [b""] * count)
    return ProducerBatch("t", partition, (0,), 0.0, builder, Waiter())


def test_the_result_is_the_place_of_this_record():
    batch = make_batch()
    delivery = Delivery(batch, 2, 99)
    assert not delivery.done()
    assert repr(delivery) == "<Delivery to t-0: pending>"
    batch.complete(base_offset=40)
    assert delivery.result() == RecordMetadata("t", 0, 42, 99)


def test_the_brokers_timestamp_counts_where_it_sets_one():
    batch = make_batch()
    batch.complete(base_offset=40, log_append_time_ms=123)
    assert Delivery(batch, 0, 99).result().timestamp_ms == 123


def test_without_acknowledgement_the_offset_is_unknown():
    batch = make_batch()
    batch.complete()
    assert Delivery(batch, 2, 99).result().offset == -1


def test_an_error_is_raised_by_result_and_returned_by_exception():
    batch = make_batch()
    batch.complete(error=ApiError(ErrorCode.INVALID_RECORD))
    delivery = Delivery(batch, 0, 99)
    assert isinstance(delivery.exception(), ApiError)
    with pytest.raises(ApiError):
        delivery.result()
    assert repr(delivery) == "<Delivery to t-0: failed>"


def test_a_wait_that_is_too_short_says_that_the_record_may_yet_arrive():
    with pytest.raises(TimedOutError, match="still being sent"):
        Delivery(make_batch(), 0, 99).result(0.1)


def test_the_parts_of_a_split_batch_decide_for_their_records():
    whole, left, right = make_batch(5), make_batch(2), make_batch(3)
    whole.parts = [left, right]
    left.parent = right.parent = whole
    left.complete(base_offset=10)
    assert not whole.done
    right.complete(error=ApiError(ErrorCode.MESSAGE_TOO_LARGE))
    assert whole.done
    assert Delivery(whole, 1, 0).result().offset == 11
    assert str(Delivery(whole, 2, 0).exception()) == str(right.error)


def test_callbacks_get_the_delivery():
    batch = make_batch()
    batch.complete(base_offset=0)
    delivery = Delivery(batch, 1, 0)
    got = []
    delivery.add_done_callback(got.append)
    assert got == [delivery]


def test_a_callback_that_raises_is_logged_and_the_next_one_runs(caplog):
    called = []

    def fail():
        raise ValueError("user")

    run_callbacks([fail, lambda: called.append(1)])
    assert called == [1]
    assert "a delivery callback raised" in caplog.text


def test_many_deliveries_are_a_sequence_in_the_order_of_the_values():
    first, second = make_batch(3, partition=0), make_batch(4, partition=1)
    deliveries = Deliveries(list(range(100, 107)))
    deliveries.extend(first, 0, 2)
    deliveries.extend(first, 2, 1)
    deliveries.extend(second, 0, 4)
    first.complete(base_offset=10)
    second.complete(base_offset=20)
    assert len(deliveries) == 7
    places = [(0, 10), (0, 11), (0, 12), (1, 20), (1, 21), (1, 22), (1, 23)]
    assert [(each.partition, each.offset) for each in deliveries.result()] == places
    assert [each.result().timestamp_ms for each in deliveries] == list(range(100, 107))
    assert deliveries[-1].result().offset == 23
    assert [each.result().offset for each in deliveries[2:4]] == [12, 20]
    with pytest.raises(IndexError):
        deliveries[7]


def test_deliveries_that_were_shuffled_are_in_the_order_of_the_values_all_the_same():
    first, second = make_batch(2, partition=0), make_batch(2, partition=1)
    deliveries = Deliveries(5)
    deliveries.extend(first, 0, 1)
    deliveries.shuffled(1, [2, 0, 1])
    deliveries.extend(first, 1, 1)
    deliveries.extend(second, 0, 2)
    first.complete(base_offset=10)
    second.complete(base_offset=20)
    places = [(each.partition, each.offset) for each in deliveries.result()]
    assert places == [(0, 10), (1, 20), (1, 21), (0, 11)]


def test_check_raises_for_the_first_record_that_failed_and_looks_into_split_batches():
    good, whole, left, right = make_batch(2), make_batch(3), make_batch(1), make_batch(2)
    whole.parts = [left, right]
    left.parent = right.parent = whole
    deliveries = Deliveries(0)
    deliveries.extend(good, 0, 2)
    deliveries.extend(whole, 0, 1)
    good.complete(base_offset=0)
    left.complete(base_offset=2)
    right.complete(error=ApiError(ErrorCode.MESSAGE_TOO_LARGE))
    deliveries.check()
    deliveries.extend(whole, 1, 2)
    with pytest.raises(ApiError):
        deliveries.check()


def test_a_delivery_can_be_awaited():
    batch = make_batch(2)

    async def wait():
        delivery = Delivery(batch, 1, 9)
        waiting = asyncio.ensure_future(_result(delivery))
        await asyncio.sleep(0)
        assert not waiting.done()
        for callback in batch.complete(base_offset=3):
            callback()
        return await waiting

    assert asyncio.run(wait()).offset == 4
    assert batch.urgent


async def _result(delivery):
    return await delivery


def test_call_without_records_has_no_error() -> None:
    deliveries = Deliveries(0)
    deliveries.check()
    assert deliveries.exception() is None
    assert deliveries.result() == []
    assert deliveries.done()
