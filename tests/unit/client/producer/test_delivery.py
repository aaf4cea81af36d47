"""What deliveries say about their records."""

from __future__ import annotations

import pytest

from barnabas.client.producer.batch import ProducerBatch
from barnabas.client.producer.delivery import Deliveries, Delivery
from barnabas.errors import ErrorCode, KafkaError, TimedOutError
from barnabas.model import RecordMetadata
from barnabas.records import BatchBuilder


class Desk:
    def wait(self, batch, timeout_s):
        return batch.done

    def when_done(self, batch, callback):
        if batch.done:
            callback()


def make_batch(count=3, partition=0):
    batch = ProducerBatch("t", partition, (0,), 0.0, BatchBuilder())
    batch.count = count
    return batch


def test_the_result_is_the_place_of_this_record():
    batch = make_batch()
    delivery = Delivery(Desk(), batch, 2, 99)
    assert not delivery.done()
    assert repr(delivery) == "<Delivery to t-0: pending>"
    batch.complete(base_offset=40)
    assert delivery.result() == RecordMetadata("t", 0, 42, 99)


def test_the_brokers_timestamp_counts_where_it_sets_one():
    batch = make_batch()
    batch.complete(base_offset=40, log_append_time_ms=123)
    assert Delivery(Desk(), batch, 0, 99).result().timestamp_ms == 123


def test_without_acknowledgement_the_offset_is_unknown():
    batch = make_batch()
    batch.complete()
    assert Delivery(Desk(), batch, 2, 99).result().offset == -1


def test_an_error_is_raised_by_result_and_returned_by_exception():
    batch = make_batch()
    batch.complete(error=KafkaError(ErrorCode.INVALID_RECORD))
    delivery = Delivery(Desk(), batch, 0, 99)
    assert isinstance(delivery.exception(), KafkaError)
    with pytest.raises(KafkaError):
        delivery.result()
    assert repr(delivery) == "<Delivery to t-0: failed>"


def test_a_wait_that_is_too_short_says_that_the_record_may_yet_arrive():
    with pytest.raises(TimedOutError, match="may yet arrive"):
        Delivery(Desk(), make_batch(), 0, 99).result(0.1)


def test_the_parts_of_a_split_batch_decide_for_their_records():
    whole, left, right = make_batch(5), make_batch(2), make_batch(3)
    whole.parts = [left, right]
    left.parent = right.parent = whole
    left.complete(base_offset=10)
    assert not whole.done
    right.complete(error=KafkaError(ErrorCode.MESSAGE_TOO_LARGE))
    assert whole.done
    assert Delivery(Desk(), whole, 1, 0).result().offset == 11
    assert Delivery(Desk(), whole, 2, 0).exception() is right.error


def test_callbacks_get_the_delivery():
    batch = make_batch()
    batch.complete(base_offset=0)
    delivery = Delivery(Desk(), batch, 1, 0)
    got = []
    delivery.add_done_callback(got.append)
    assert got == [delivery]


def test_many_deliveries_are_a_sequence_in_the_order_of_the_values():
    first, second = make_batch(3, partition=0), make_batch(4, partition=1)
    deliveries = Deliveries(Desk(), list(range(100, 107)))
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
