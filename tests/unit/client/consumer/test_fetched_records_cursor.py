"""What was handed out and what is in hand, in every way of reading."""

from __future__ import annotations

import pytest

from barnabas.client.consumer.fetched_records import Cursor
from barnabas.client.consumer.fetcher import AssignedPartition, Chunk
from barnabas.model import TimestampType, TopicPartition
from barnabas.records import Record


def make_state(partition=0):
    state = AssignedPartition(TopicPartition("t", partition))
    state.move_to(0)
    return state


def load(cursor, state, first, end):
    records = [
        Record("t", state.tp.partition, offset, 1, TimestampType.CREATE_TIME, None, b"", ())
        for offset in range(first, end)
    ]
    cursor.load(Chunk(state, state.version, b"", end), records)
    state.fetch_offset = end


@pytest.fixture
def state():
    return make_state()


@pytest.fixture
def cursor(state):
    made = Cursor()
    load(made, state, 0, 10)
    return made


def test_a_list_moves_the_position_and_the_next_poll_says_it_is_done(cursor, state):
    assert [record.offset for record in cursor.take_list(4)] == [0, 1, 2, 3]
    assert (cursor.position(state), cursor.done(state)) == (4, 0)
    cursor.mark_processed()
    assert (cursor.position(state), cursor.done(state)) == (4, 4)


def test_an_iteration_has_one_record_in_hand(cursor, state):
    iterator = cursor.take_iterator(5)
    assert (cursor.position(state), cursor.done(state)) == (0, 0)
    next(iterator)
    assert (cursor.position(state), cursor.done(state)) == (1, 0)
    next(iterator)
    assert (cursor.position(state), cursor.done(state)) == (2, 1)
    for _ in range(3):
        next(iterator)
    assert next(iterator, None) is None
    assert (cursor.position(state), cursor.done(state)) == (5, 4)
    cursor.mark_processed()
    assert cursor.done(state) == 5


def test_what_a_broken_iteration_left_comes_next(cursor, state):
    iterator = cursor.take_iterator(5)
    next(iterator)
    cursor.mark_processed()
    assert (state.position, state.done) == (1, 1)
    assert [record.offset for record in cursor.take_list(100)] == list(range(1, 10))
    assert not cursor.has_records


def test_the_offset_after_the_last_record_may_be_beyond_a_gap(state):
    cursor = Cursor()
    records = [Record("t", 0, 3, 1, TimestampType.CREATE_TIME, None, b"", ())]
    cursor.load(Chunk(state, state.version, b"", 20), records)
    cursor.take_list(5)
    assert state.position == 20


def test_a_chunk_without_records_moves_the_position(state):
    cursor = Cursor()
    cursor.load(Chunk(state, state.version, b"", 20), [])
    assert not cursor.has_records
    cursor.mark_processed()
    assert (state.position, state.done) == (20, 20)


def test_a_seek_ends_a_running_iteration(cursor, state):
    iterator = cursor.take_iterator(5)
    next(iterator)
    cursor.drop(lambda each: each is state)
    state.move_to(90)
    assert next(iterator, None) is None
    cursor.mark_processed()
    assert (state.position, state.done) == (90, 90)


def test_drop_leaves_other_partitions_alone(cursor, state):
    iterator = cursor.take_iterator(5)
    cursor.drop(lambda each: each is not state)
    assert next(iterator).offset == 0


def test_what_is_left_of_a_paused_partition_is_fetched_again(cursor, state):
    cursor.take_list(4)
    state.paused = True
    assert not cursor.has_records
    other = make_state(1)
    load(cursor, other, 0, 3)
    assert (state.fetch_offset, state.position) == (4, 4)
    cursor.take_list(3)
    cursor.mark_processed()
    assert (state.done, other.done) == (4, 3)


def test_a_seek_after_a_list_was_handed_out_is_not_overruled_by_finish(cursor, state):
    cursor.take_list(4)
    state.move_to(2)
    cursor.mark_processed()
    assert (state.position, state.done) == (2, 2)


def test_lists_of_two_partitions_are_done_together(cursor, state):
    other = make_state(1)
    cursor.take_list(10)
    load(cursor, other, 0, 3)
    cursor.take_list(1)
    cursor.mark_processed()
    assert (state.done, other.done) == (10, 1)
