"""Where records wait: batches, bounds and who is woken when."""

from __future__ import annotations

import threading

import pytest

from barnabas.client.producer import accumulator as accumulator_module
from barnabas.client.producer.accumulator import NEVER_S, Accumulator
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, BufferFullError, ClosedError
from barnabas.records import BatchBuilder, Compression
from barnabas.records.codec_pure.limits import RECORD_OVERHEAD_MAX


class Fixture:
    def __init__(self, **settings):
        self.clock = ManualClock()
        self.wakes = 0
        defaults = {
            "batch_size": 1000,
            "buffer_memory": 10_000,
            "linger_s": 0.01,
            "max_block_s": 0.05,
            "max_record_bytes": 5_000,
            "compression": Compression.NONE,
        }
        self.accumulator = Accumulator(
            **{**defaults, **settings}, clock=self.clock, wake=self._wake, random=lambda: 0.0
        )
        self.topic = self.accumulator.set_partitions("t", 3, range(3))

    def _wake(self):
        self.wakes += 1

    def append(self, value=b"v", partition=0, key=None, headers=()):
        return self.accumulator.append(self.topic, partition, 1, key, value, headers)


def test_records_of_a_partition_share_a_batch_until_it_is_full():
    fixture = Fixture()
    first = [fixture.append(bytes(300)) for _ in range(3)]
    assert [index for _, index in first] == [0, 1, 2]
    assert len({id(batch) for batch, _ in first}) == 1
    batch, index = fixture.append(bytes(300))
    assert index == 0
    assert first[0][0].closed
    assert not batch.closed


def test_the_sender_is_woken_for_a_new_batch_and_for_a_full_one_only():
    fixture = Fixture()
    fixture.append(bytes(300))
    assert fixture.wakes == 1
    fixture.append(bytes(300))
    fixture.append(bytes(300), partition=1)  # it wakes for the first in time for this one as well
    assert fixture.wakes == 1
    fixture.append(bytes(500))
    assert fixture.wakes == 2


def test_an_append_while_the_sender_plans_wakes_it_again():
    fixture = Fixture()
    fixture.append()
    fixture.accumulator.wakes_at_s = NEVER_S  # as the send loop does before it plans
    fixture.append(partition=1)
    assert fixture.wakes == 2
    fixture.accumulator.sleep_until(5.0)
    assert fixture.accumulator.wakes_at_s == 0.01


def test_records_without_key_stick_to_a_partition_until_its_batch_is_full():
    fixture = Fixture()
    partitions = [fixture.append(bytes(400), partition=None)[0].partition for _ in range(6)]
    assert partitions == [0, 0, 1, 1, 0, 0]


def test_a_full_buffer_raises_after_the_time_to_block():
    fixture = Fixture(buffer_memory=1500, max_block_s=0.0)
    fixture.append(bytes(900))
    with pytest.raises(BufferFullError, match="970 of 1500 bytes"):
        fixture.append(bytes(900))


def test_memory_that_becomes_free_lets_a_blocked_append_go_on():
    fixture = Fixture(buffer_memory=1500, max_block_s=60.0)
    batch, _ = fixture.append(bytes(900))
    done = threading.Event()

    def append_more():
        fixture.append(bytes(900))
        done.set()

    thread = threading.Thread(target=append_more)
    thread.start()
    queue = fixture.topic.queues[0]
    while fixture.wakes < 2:  # it is woken when the append begins to wait
        pass
    fixture.accumulator.take(queue)
    fixture.accumulator.complete(batch, 0)
    assert done.wait(60)
    thread.join()


def test_memory_is_accounted_for_to_the_byte():
    fixture = Fixture()
    batches = {fixture.append(bytes(size), key=b"k", headers=[("h", b"v")])[0] for size in range(0, 900, 50)}
    assert fixture.accumulator.used_bytes == sum(batch.size_bytes for batch in batches)
    for batch in batches:
        fixture.accumulator.complete(batch, 0)
    assert fixture.accumulator.used_bytes == 0
    assert fixture.accumulator.unfinished_count() == 0


def test_a_record_larger_than_a_request_is_refused_at_once():
    fixture = Fixture()
    with pytest.raises(ApiError, match=r"MESSAGE_TOO_LARGE.*max_request_size"):
        fixture.append(bytes(5_001 - RECORD_OVERHEAD_MAX))
    assert not fixture.topic.queues[0].batches


def test_a_record_larger_than_a_batch_has_one_of_its_own():
    fixture = Fixture()
    small, _ = fixture.append()
    large, _ = fixture.append(bytes(3_000))
    assert large is not small
    assert large.count == 1


@pytest.mark.parametrize(
    ("value", "key", "headers", "message"),
    [
        ("text", None, (), "value must be bytes or None, not str"),
        (b"", "text", (), "key must be bytes or None, not str"),
        (b"", None, [(b"name", b"")], "headers are"),
        (b"", None, [("name", 5)], "headers are"),
        (b"", None, {"name": b"value"}, "headers are"),
        (5, None, (), "value must be bytes or None, not int"),
    ],
)
def test_what_is_not_bytes_is_refused_and_leaves_nothing_behind(value, key, headers, message):
    fixture = Fixture()
    with pytest.raises(TypeError, match=message):
        fixture.append(value, key=key, headers=headers)
    assert not fixture.topic.queues[0].batches
    assert fixture.accumulator.unfinished_count() == 0
    assert fixture.accumulator.used_bytes == 0


def test_many_values_fill_batch_after_batch():
    fixture = Fixture()
    values = [b"%03d" % number * 30 for number in range(30)]
    place = 0
    batches = []
    while place < len(values):
        batch, first, count = fixture.accumulator.append_values(fixture.topic, 0, 5, values, place)
        assert first == 0
        batches.append(batch)
        place += count
    assert sum(batch.count for batch in batches) == 30
    assert all(batch.size_bytes <= 1000 for batch in batches)
    assert [batch.closed for batch in batches] == [True] * (len(batches) - 1) + [False]


def test_a_batch_that_is_waited_for_does_not_linger():
    fixture = Fixture(linger_s=1000.0)
    batch, _ = fixture.append()
    assert fixture.accumulator.ready_at_s(batch) == 1000.0
    assert not fixture.accumulator.wait(batch, 0.0)
    assert fixture.accumulator.ready_at_s(batch) == 0.0
    assert fixture.wakes == 2


def test_after_refusal_nothing_is_taken():
    fixture = Fixture()
    fixture.accumulator.refuse(ClosedError("closed"))
    with pytest.raises(ClosedError):
        fixture.append()
    with pytest.raises(ClosedError):
        fixture.accumulator.append_values(fixture.topic, 0, 1, [b""], 0)


def test_a_topic_grows_and_keeps_its_queues():
    fixture = Fixture()
    fixture.append(partition=2)
    topic = fixture.accumulator.set_partitions("t", 5, [3, 4])
    assert len(topic.queues) == 5
    assert topic.queues[2].batches
    assert topic.sticky in (3, 4)


def test_a_batch_that_comes_back_takes_its_old_place():
    fixture = Fixture()
    for _ in range(4):
        fixture.append(bytes(900))
    queue = fixture.topic.queues[0]
    first, second, third = (fixture.accumulator.take(queue) for _ in range(3))
    for batch in (second, third, first):
        fixture.accumulator.put_back(queue, batch)
    assert [batch.order for batch in queue.batches] == [(0,), (1,), (2,), (3,)]


def test_callbacks_run_once_the_outcome_is_known():
    fixture = Fixture()
    batch, _ = fixture.append()
    called = []
    fixture.accumulator.when_done(batch, lambda: called.append("early"))
    assert called == []
    for callback in fixture.accumulator.complete(batch, 7):
        callback()
    fixture.accumulator.when_done(batch, lambda: called.append("late"))
    assert called == ["early", "late"]


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        (b"x" * 900, [("リクエスト識別子" * 3, b"v")] * 3),
        (memoryview(bytes(4_000)).cast("d"), []),
        (b"", [("n" * 64, b"v" * 200)] * 8),
        (b"x" * 939, []),
    ],
)
def test_a_batch_that_is_opened_for_a_record_has_room_for_it(value, headers):
    fixture = Fixture(buffer_memory=100_000, max_record_bytes=50_000)
    batch, index = fixture.append(value, headers=headers)
    assert (index, batch.count) == (0, 1)
    assert len(fixture.topic.queues[0].batches) == 1
    assert batch.builder.size_bytes <= batch.size_bytes == fixture.accumulator.used_bytes


def test_no_empty_batch_is_left_whatever_interrupts_an_append():
    fixture = Fixture()

    class InterruptingHeaders(list):
        asked = 0

        def __iter__(self):
            self.asked += 1
            if self.asked == 2:  # the size is known, the batch is open
                raise KeyboardInterrupt
            return super().__iter__()

    with pytest.raises(KeyboardInterrupt):
        fixture.append(b"v", headers=InterruptingHeaders([("n", b"v")]))
    assert not fixture.topic.queues[0].batches
    assert fixture.accumulator.used_bytes == 0


def test_a_batch_that_was_taken_is_not_kept_in_memory_by_its_lane():
    fixture = Fixture()
    fixture.append(partition=None)
    queue = fixture.topic.queues[fixture.topic.sticky]
    fixture.accumulator.take(queue)
    assert fixture.topic.encoders == [None, None, None]
    assert fixture.topic.sticky_encoder is None


def test_a_batch_is_in_its_queue_when_it_has_a_record_and_no_sooner(monkeypatch):
    """The sender looks at queues past the lock: a batch that is taken away again would be missing when it takes it."""
    fixture, seen = Fixture(), []
    queue = fixture.topic.queues[0]

    class Refusing(BatchBuilder):
        def append(self, *_arguments, **_options):
            seen.append(len(queue.batches))
            raise TypeError("refused")

    with monkeypatch.context() as patch:
        patch.setattr(accumulator_module, "BatchBuilder", Refusing)
        with pytest.raises(TypeError, match="refused"):
            fixture.append()
    assert seen == [0]
    assert (len(queue.batches), fixture.accumulator.used_bytes, fixture.accumulator.unfinished_count()) == (0, 0, 0)
    fixture.append()
    assert len(queue.batches) == 1


def test_at_the_bound_of_memory_batches_fill_all_the_same():
    """Many partitions take turns: were the batch of one closed when another needs room, each would have one record."""
    fixture = Fixture(batch_size=500, buffer_memory=20_000, max_block_s=0.0)
    batches = {}
    for number in range(2_000):
        while True:
            try:
                batch, _ = fixture.append(bytes(60), partition=number % 3)
                break
            except BufferFullError:
                oldest = next(each for each in batches if not each.done)
                fixture.accumulator.take(fixture.topic.queues[oldest.partition])
                fixture.accumulator.complete(oldest, 0)
        batches[batch] = None
    closed = [batch for batch in batches if batch.closed]
    assert len(closed) > 100
    assert min(batch.count for batch in closed) >= 5


def test_while_somebody_needs_room_no_batch_lingers():
    fixture = Fixture(batch_size=500, buffer_memory=2_300, max_block_s=0.0)
    batches = [fixture.append(bytes(480))[0] for _ in range(3)]
    batches.append(fixture.append(partition=1)[0])
    assert fixture.accumulator.ready_at_s(batches[-1]) == 0.01
    with pytest.raises(BufferFullError):
        fixture.append(partition=2)
    assert not batches[-1].closed
    assert fixture.accumulator.ready_at_s(batches[-1]) == 0.0
    fixture.accumulator.complete(fixture.accumulator.take(fixture.topic.queues[0]), 0)
    fixture.append(partition=2)
    assert fixture.accumulator.ready_at_s(batches[-1]) == 0.01


def test_open_batches_that_hold_half_of_the_memory_give_back_what_they_do_not_use():
    fixture = Fixture(batch_size=1000, buffer_memory=2_500, max_block_s=0.0)
    first, second = fixture.append(partition=0)[0], fixture.append(partition=1)[0]
    fixture.append(partition=2)
    assert first.closed
    assert second.closed
    fixture.append(partition=0)
    assert not fixture.topic.queues[2].batches[-1].closed
