"""Fetcher and cursor against a model: whatever the application does, it sees each partition's records in order.

Operations in any order: fetch something, poll a list, poll columns, iterate a little, break off, seek, pause, resume.
An iterator that was broken off may be taken up again later. After each, what was handed out must be exactly what
follows the position that the model expects.
"""

from __future__ import annotations

import copy

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.cluster import ClusterView, PartitionView, TopicView
from barnabas.client.consumer.fetched_records import Cursor, decode_chunk, decode_columns
from barnabas.client.consumer.fetcher import Fetcher, Subscription
from barnabas.model import Node, TopicPartition
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.records import BatchBuilder, iter_headers, read_records, stamp
from tests.support.searches import examples

PARTITIONS = 2
BATCHES = 6
BATCH_RECORDS = 4
END = BATCHES * BATCH_RECORDS
NODE = 1
VIEW = ClusterView(
    brokers={NODE: Node(NODE, "a", 1)},
    topics={"t": TopicView("t", partitions=tuple(PartitionView(each, NODE) for each in range(PARTITIONS)))},
)


def make_log(partition):
    log = b""
    for base in range(0, END, BATCH_RECORDS):
        builder = BatchBuilder()
        for offset in range(base, base + BATCH_RECORDS):
            builder.append(1, None, b"%d/%d" % (partition, offset), ())
        batch = builder.build()
        stamp(batch, 0, base, 0)
        log += bytes(batch)
    return log


LOGS = [make_log(partition) for partition in range(PARTITIONS)]


def read_log(partition, offset, batches):
    """As a broker does: whole batches from the one that holds `offset`."""
    log = LOGS[partition]
    places = [position for position, header in iter_headers(log) if header.next_offset > offset]
    if not places:
        return b""
    last = places[min(batches, len(places)) - 1]
    end = next(position + header.size for position, header in iter_headers(log) if position == last)
    return log[places[0] : end]


class Rows(list):
    """As `ArrowReader` does, without Arrow."""

    def read(self, buffer, topic, partition, *, min_offset, max_records, check_crc):
        records = read_records(buffer, topic, partition, min_offset=min_offset, check_crc=check_crc)
        self += [(record.partition, record.offset, record.value) for record in records[:max_records]]
        return self[-1][1] + 1


def said(fetch):
    return {(part.partition, part.fetch_offset) for topic in fetch.request.topics for part in topic.partitions}


class Model:
    def __init__(self):
        self.subscription = Subscription()
        self.subscription.assign_by_hand(TopicPartition("t", each) for each in range(PARTITIONS))
        self.states = list(self.subscription.partitions.values())
        self.fetcher = Fetcher(
            self.subscription,
            reset_policy="none",
            min_bytes=1,
            max_wait_ms=1,
            max_bytes=10_000,
            partition_max_bytes=300,
            buffer_bytes_max=5_000,
        )
        for state in self.states:
            state.move_to(0)
        self.cursor = Cursor()
        self.expected = [0] * PARTITIONS
        self.iterator = iter(())
        self.under_way = None
        """A fetch that has gone on, and waits for its answer."""

    def fetch(self, batches, apply_late, may_go_on=True):
        """A fetch is made; with `apply_late` its answer comes after the next operation."""
        fetch = self.under_way or self.fetcher.next_fetch(NODE, VIEW)
        if fetch is None:
            return None
        self.under_way = None
        parts = [
            PartitionData(
                partition_index=tp.partition,
                error_code=0,
                high_watermark=END,
                records=read_log(tp.partition, asked.part.fetch_offset, batches),
            )
            for tp, asked in fetch.asked.items()
        ]
        response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=parts)])

        def apply():
            self.fetcher.on_response(fetch, response)
            if may_go_on and self.under_way is None:
                self.go_on(fetch)

        if apply_late:
            return apply
        return apply()

    def go_on(self, fetch):
        """Ask again after an answer, as the plan that looks at everything would, if that is what `run_slice` does."""
        planned = copy.deepcopy(self.fetcher, {id(VIEW): VIEW}).next_fetch(NODE, VIEW)
        before = said(fetch)
        if self.fetcher.repeat(fetch, VIEW):
            self.under_way = fetch
            assert fetch.request.max_bytes == planned.request.max_bytes
            assert fetch.request.max_wait_ms == planned.request.max_wait_ms
            assert said(fetch) == said(planned)
            assert {(each.state.tp.partition, each.part.fetch_offset) for each in fetch.changed} == said(fetch) - before

    def load(self):
        while not self.cursor.has_records:
            chunk = self.cursor.take_remaining() or self.fetcher.take(self.cursor.accepts)
            if chunk is None:
                return
            records, whole, damage = decode_chunk(chunk, chunk.state.position, check_crc=True)
            assert damage is None
            assert whole is chunk
            self.cursor.load(chunk, records)

    def see(self, partition, offset, value):
        assert value == b"%d/%d" % (partition, offset)
        assert offset == self.expected[partition]
        assert not self.states[partition].paused
        self.expected[partition] += 1

    def poll(self, count):
        self.cursor.mark_processed()
        self.load()
        for record in self.cursor.take_list(count):
            self.see(record.partition, record.offset, record.value)

    def poll_columns(self, count):
        self.cursor.mark_processed()
        rows = Rows()
        while len(rows) < count:
            chunk = self.cursor.take_remaining() or self.fetcher.take(self.cursor.accepts)
            if chunk is None:
                break
            position = chunk.state.position
            next_offset, rest, damage = decode_columns(chunk, rows, position, count - len(rows), check_crc=True)
            assert damage is None
            self.cursor.mark_returned(chunk, next_offset, rest)
        for row in rows:
            self.see(*row)

    def iterate(self, count):
        for _ in range(count):
            record = next(self.iterator, None)
            if record is None:
                self.cursor.mark_processed()
                self.load()
                self.iterator = self.cursor.take_iterator(3)
                record = next(self.iterator, None)
            if record is None:
                return
            self.see(record.partition, record.offset, record.value)

    def seek(self, partition, offset):
        state = self.states[partition]
        self.cursor.drop(lambda each: each is state)
        state.move_to(offset)
        self.fetcher.drop_stale()
        self.expected[partition] = offset

    def pause(self, partition):
        # As a user does it: between polls, not while records of the partition are being iterated over.
        self.cursor.mark_processed()
        self.states[partition].paused = True

    def resume(self, partition):
        self.states[partition].paused = False

    def check(self):
        for state, expected in zip(self.states, self.expected, strict=True):
            position, done = self.cursor.position(state), self.cursor.done(state)
            assert done <= position == expected
            assert position <= state.fetch_offset or state.fetch_offset >= state.position
        assert 0 <= self.fetcher.buffered_bytes <= 5_000


partitions = st.integers(0, PARTITIONS - 1)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("fetch"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("poll"), st.integers(1, 10)),
        st.tuples(st.just("poll_columns"), st.integers(1, 10)),
        st.tuples(st.just("iterate"), st.integers(1, 7)),
        st.tuples(st.just("seek"), partitions, st.integers(0, END)),
        st.tuples(st.just("pause"), partitions),
        st.tuples(st.just("resume"), partitions),
    ),
    max_size=50,
)


@settings(max_examples=examples(150))
@given(operations)
def test_records_come_in_order_without_gap_or_repetition(history):
    model = Model()
    late = None
    for name, *arguments in history:
        answer = getattr(model, name)(*arguments)
        if late is not None:
            late()
        late = answer
        model.check()
    if late is not None:
        late()
    for partition in range(PARTITIONS):
        model.resume(partition)
    for _ in range(200):
        model.fetch(2, False, may_go_on=False)
        model.poll(5)
        model.check()
    assert model.expected == [END] * PARTITIONS
