"""Sequence numbers: when they follow on, and when they begin again."""

from __future__ import annotations

import pytest

from barnabas.client.producer.accumulator import ProducerBatch
from barnabas.client.producer.sender import EPOCH_MAX, SEQUENCE_MASK, PartitionSequences
from barnabas.records import BatchBuilder


def make_batch(order, count=10):
    builder = BatchBuilder()
    builder.append_many(0, [b""] * count)
    batch = ProducerBatch("t", 0, (order,), 0.0, builder, waiter=None)
    batch.attempts = 1
    return batch


@pytest.fixture
def sequences():
    made = PartitionSequences()
    made.start(7, 0)
    first = make_batch(-1, 1)
    made.assign(first)
    made.acknowledged(first)
    return made


def test_numbers_follow_on(sequences):
    batches = [make_batch(order) for order in range(3)]
    for batch in batches:
        sequences.assign(batch)
    assert [batch.base_sequence for batch in batches] == [1, 11, 21]
    assert {(batch.producer_id, batch.producer_epoch) for batch in batches} == {(7, 0)}


def test_numbers_wrap_to_zero(sequences):
    sequences.next_sequence = SEQUENCE_MASK - 3
    first, second = make_batch(0), make_batch(1)
    sequences.assign(first)
    sequences.assign(second)
    assert second.base_sequence == 6


def test_the_first_batch_goes_alone():
    sequences = PartitionSequences()
    sequences.start(7, 0)
    first, second = make_batch(0), make_batch(1)
    assert sequences.may_send(first)
    sequences.assign(first)
    assert not sequences.may_send(second)
    assert sequences.may_send(first)  # again, after a failure
    sequences.acknowledged(first)
    assert sequences.may_send(second)


def test_a_sixth_batch_waits_until_one_is_resolved(sequences):
    batches = [make_batch(order) for order in range(6)]
    for batch in batches[:5]:
        assert sequences.may_send(batch)
        sequences.assign(batch)
    assert not sequences.may_send(batches[5])
    assert sequences.may_send(batches[0])
    sequences.resolve(batches[0])
    assert sequences.may_send(batches[5])


def test_a_sixth_batch_waits_for_the_first_one_though_those_between_are_resolved(sequences):
    batches = [make_batch(order) for order in range(6)]
    for batch in batches[:5]:
        sequences.assign(batch)
    for batch in batches[1:5]:
        sequences.acknowledged(batch)
    assert not sequences.may_send(batches[5])
    assert sequences.may_send(batches[0])
    sequences.acknowledged(batches[0])
    for batch in [make_batch(order) for order in range(6, 11)]:
        assert sequences.may_send(batch)
        sequences.assign(batch)


def test_a_batch_that_was_refused_on_the_first_try_counts_no_more(sequences):
    first, *others = [make_batch(order) for order in range(6)]
    sequences.assign(first)
    for _ in range(2):
        for batch in others[:4]:
            assert sequences.may_send(batch)
            sequences.assign(batch)
        for batch in reversed(others[:4]):
            sequences.refused_untouched(batch)
            batch.forget_sequence()
    assert sequences.next_sequence == 11


def test_a_number_is_not_taken_back_when_a_later_batch_is_stored(sequences):
    refused, stored, after = [make_batch(order) for order in range(3)]
    sequences.assign(refused)
    sequences.assign(stored)
    sequences.acknowledged(stored)
    sequences.refused_untouched(refused)
    sequences.assign(after)
    assert after.base_sequence == 21


def test_a_gap_before_a_later_batch_is_no_reason_to_begin_again(sequences):
    first, second = make_batch(0), make_batch(1)
    sequences.assign(first)
    sequences.assign(second)
    sequences.out_of_order(second)
    assert not sequences.restart_due


def test_a_gap_before_the_first_unresolved_batch_begins_a_new_epoch(sequences):
    lost, first, second = make_batch(0), make_batch(1), make_batch(2)
    for batch in (lost, first, second):
        sequences.assign(batch)
    sequences.resolve(lost)  # given up
    sequences.out_of_order(first)
    assert sequences.restart_due
    assert not sequences.may_send(first)
    assert sequences.restart()
    assert not first.in_sequence
    sequences.assign(first)
    assert (first.producer_epoch, first.base_sequence) == (1, 0)


def test_epochs_that_are_used_up_need_a_new_producer_id(sequences):
    sequences.epoch = EPOCH_MAX
    assert not sequences.restart()
    assert sequences.producer_id == -1


def test_a_refusal_on_the_first_try_leaves_no_gap(sequences):
    refused, after = make_batch(0), make_batch(1)
    sequences.assign(refused)
    sequences.refused_untouched(refused)
    sequences.assign(after)
    assert after.base_sequence == 1


def test_a_refusal_after_several_tries_takes_no_number_back(sequences):
    refused, after = make_batch(0), make_batch(1)
    sequences.assign(refused)
    refused.attempts = 2
    sequences.refused_untouched(refused)
    sequences.assign(after)
    assert after.base_sequence == 11
