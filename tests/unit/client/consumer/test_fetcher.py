"""Fetches are planned within bounds, and what they bring is kept, checked and handed out in order."""

from __future__ import annotations

import pytest

from barnabas.client.cluster import ClusterView, PartitionView, TopicView
from barnabas.client.consumer.fetcher import (
    FETCH_BYTES,
    OUT_OF_RANGE,
    SHARE_BYTES_MAX,
    SHARE_BYTES_MIN,
    Fetcher,
    Subscription,
)
from barnabas.errors import ApiError, CorruptBatchError, ErrorCode
from barnabas.model import Node, TopicPartition
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.records import BatchBuilder, stamp

VIEW = ClusterView(
    brokers={1: Node(1, "a", 1), 2: Node(2, "b", 1)},
    topics={"t": TopicView("t", partitions=(PartitionView(0, 1), PartitionView(1, 1), PartitionView(2, 2)))},
)
ONE_BROKER = ClusterView(
    brokers={1: Node(1, "a", 1)},
    topics={"t": TopicView("t", partitions=tuple(PartitionView(partition, 1) for partition in range(3)))},
)


def make_batch(base_offset, count=1, size=10):
    builder = BatchBuilder()
    for number in range(count):
        builder.append(1, None, b"%d" % (base_offset + number) + bytes(size), ())
    batch = builder.build()
    stamp(batch, 0, base_offset, 0)
    return bytes(batch)


class Fixture:
    def __init__(self, *, policy="earliest", partition_max_bytes=1_000, buffer_bytes_max=10_000, view=VIEW, count=3):
        self.view = view
        self.subscription = Subscription()
        self.subscription.assign_by_hand(TopicPartition("t", partition) for partition in range(count))
        self.fetcher = Fetcher(
            self.subscription,
            reset_policy=policy,
            min_bytes=1,
            max_wait_ms=500,
            max_bytes=50_000_000,
            partition_max_bytes=partition_max_bytes,
            buffer_bytes_max=buffer_bytes_max,
        )
        for state in self.subscription.partitions.values():
            state.move_to(0)

    def state(self, partition=0):
        return self.subscription.state(TopicPartition("t", partition))

    def fetch(self, node_id=1):
        return self.fetcher.next_fetch(node_id, self.view)

    def would_ask(self, node_id=1):
        """What a fetch would ask for, if it were made now."""
        fetch = self.fetch(node_id)
        if fetch is None:
            return set()
        self.fetcher.on_failure(fetch)
        return offsets_asked(fetch)

    def answer(self, fetch, partition=0, records=None, error=0):
        part = PartitionData(partition_index=partition, error_code=error, high_watermark=100, records=records)
        response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[part])])
        return self.fetcher.on_response(fetch, response)

    def take(self, accepts=lambda tp: True):
        return self.fetcher.take(accepts)


def offsets_asked(fetch):
    return {(part.partition, part.fetch_offset) for topic in fetch.request.topics for part in topic.partitions}


def test_a_broker_is_asked_for_what_it_leads_and_what_is_wanted():
    fixture = Fixture()
    assert fixture.would_ask(1) == {(0, 0), (1, 0)}
    assert fixture.would_ask(2) == {(2, 0)}
    fixture.state(1).paused = True
    assert fixture.would_ask(1) == {(0, 0)}
    fixture.state(0).forget_position(None)
    assert fixture.would_ask(1) == set()
    assert fixture.fetcher.sources(VIEW) == {1, 2}


def test_the_next_fetch_begins_after_what_came():
    fixture = Fixture()
    fetch = fixture.fetch()
    assert not fixture.answer(fetch, 0, make_batch(0, 3) + make_batch(3, 4) + make_batch(7)[:30])
    assert offsets_asked(fixture.fetch()) == {(0, 7), (1, 0)}
    chunk = fixture.take()
    assert chunk.next_offset == 7
    assert fixture.fetcher.buffered_bytes == 0
    assert fixture.take() is None


def parts_asked(fetch):
    return {part.partition: part for topic in fetch.request.topics for part in topic.partitions}


def test_a_fetch_goes_on_where_only_offsets_have_changed():
    fixture = Fixture(view=ONE_BROKER)
    fetch = fixture.fetch()
    for base, partition in enumerate((2, 2, 0)):
        fixture.answer(fetch, partition, make_batch(base % 2))
        assert fixture.fetcher.repeat(fetch, ONE_BROKER)
        assert [asked.state.tp.partition for asked in fetch.changed] == [partition]
        assert fixture.fetch() is None, "all is under way"
        fixture.take()
    assert offsets_asked(fetch) == {(0, 1), (1, 0), (2, 2)}


def fill(fixture):
    for partition in range(3):
        fixture.state(partition).buffered_bytes = 900
    fixture.fetcher._buffered_bytes = 2_700


@pytest.mark.parametrize(
    "change",
    [
        lambda fixture: setattr(fixture.state(1), "paused", True),
        lambda fixture: fixture.state(1).move_to(7),
        lambda fixture: fixture.subscription.assign_by_hand([TopicPartition("t", 0), TopicPartition("t", 1)]),
        lambda fixture: setattr(fixture, "view", VIEW),
        lambda fixture: fixture.fetcher._stop(fixture.state(1), CorruptBatchError("damaged")),
        lambda fixture: setattr(fixture.state(1), "buffered_bytes", 1_001),
        fill,
    ],
)
def test_a_fetch_does_not_go_on_where_more_has_changed(change):
    fixture = Fixture(view=ONE_BROKER, buffer_bytes_max=5_000)
    fetch = fixture.fetch()
    fixture.answer(fetch)
    change(fixture)
    assert not fixture.fetcher.repeat(fetch, fixture.view)
    assert not fetch.is_under_way


def test_a_fetch_of_some_partitions_does_not_go_on_when_others_are_wanted_again():
    fixture = Fixture(view=ONE_BROKER)
    fixture.state(1).paused = True
    fetch = fixture.fetch()
    fixture.answer(fetch)
    fixture.state(1).paused = False
    assert not fixture.fetcher.repeat(fetch, ONE_BROKER)
    assert offsets_asked(fixture.fetch()) == {(0, 0), (1, 0), (2, 0)}


def test_what_a_partition_without_news_is_asked_for_is_not_made_again():
    fixture = Fixture()
    first = fixture.fetch()
    fixture.answer(first, 0, make_batch(0))
    before, after = parts_asked(first), parts_asked(fixture.fetch())
    assert after[1] is before[1]
    assert (before[0].fetch_offset, after[0].fetch_offset) == (0, 1), "what was asked before stays as it was"


def test_partitions_that_are_given_up_are_asked_from_where_they_begin_anew():
    fixture = Fixture()
    first = fixture.fetch()
    fixture.answer(first, 0, make_batch(0, 3))
    fixture.subscription.replace([])
    fixture.fetcher.drop_stale()
    assert not fixture.fetcher._parts
    fixture.subscription.replace([TopicPartition("t", 0)])
    fixture.state(0).move_to(1)
    assert fixture.would_ask() == {(0, 1)}


@pytest.mark.parametrize("is_used_up_first", [True, False])
def test_none_of_many_partitions_with_much_to_read_is_left_out(is_used_up_first):
    count, room = 20, 4
    leaders = tuple(PartitionView(partition, 1) for partition in range(count))
    view = ClusterView({1: Node(1, "a", 1)}, {"t": TopicView("t", partitions=leaders)})
    fixture = Fixture(view=view, count=count, buffer_bytes_max=100_000)
    served = []
    for _ in range(3 * count // room):
        fetch = fixture.fetch()
        for part in fetch.request.topics[0].partitions[:room]:  # where the answer is full
            fixture.answer(fetch, part.partition, make_batch(part.fetch_offset))
            served.append(part.partition)
        if not is_used_up_first:
            fixture.fetcher.on_failure(fixture.fetch())
        while fixture.take():
            pass
    assert sorted(served) == sorted(3 * [*range(count)])
    assert sorted(served[:count]) == [*range(count)]


def test_memory_is_bounded_with_what_is_under_way():
    fixture = Fixture(partition_max_bytes=1_000, buffer_bytes_max=2_500)
    first = fixture.fetch(1)
    assert first.request.max_bytes == 1_250  # half of the room, so that there is some for what comes next
    assert fixture.fetch(2).request.max_bytes == 1_000
    fixture.state(2).move_to(1)
    assert fixture.fetch(2) is None  # 250 bytes are left, less than a partition may send
    fixture.answer(first, 0, make_batch(0, 1, 100))
    assert fixture.fetch(2).request.max_bytes == 1_000


def test_while_a_broker_is_put_off_each_step_of_the_application_counts():
    fixture = Fixture(partition_max_bytes=1_000, buffer_bytes_max=1_500)
    fixture.answer(fixture.fetch(1), 0, make_batch(0, 1, 600))
    assert fixture.fetch(2) is None
    assert list(fixture.fetcher.deferred_nodes) == [2]
    assert fixture.take()
    assert fixture.fetcher.wants_fetch
    assert fixture.fetch(2) is not None
    assert not fixture.fetcher.deferred_nodes


def test_no_broker_takes_the_room_of_all_others():
    fixture = Fixture(partition_max_bytes=1_000, buffer_bytes_max=4_000)
    assert fixture.fetch(1).request.max_bytes == 2_000  # as far as is known, it leads alone
    assert fixture.fetcher.sources(VIEW) == {1, 2}
    fixture = Fixture(partition_max_bytes=1_000, buffer_bytes_max=4_000)
    fixture.fetcher.sources(VIEW)
    assert fixture.fetch(1).request.max_bytes == 1_000  # half of its half
    assert fixture.fetch(2).request.max_bytes == 1_000


@pytest.mark.parametrize(("count", "share"), [(1, SHARE_BYTES_MAX), (6, FETCH_BYTES // 6), (1_000, SHARE_BYTES_MIN)])
def test_less_is_asked_of_each_where_there_are_many(count, share):
    partitions = tuple(PartitionView(partition, 1) for partition in range(count))
    view = ClusterView(VIEW.brokers, {"t": TopicView("t", partitions=partitions)})
    fixture = Fixture(partition_max_bytes=None, buffer_bytes_max=32_000_000, count=count, view=view)
    (topic,) = fixture.fetch().request.topics
    assert {part.partition_max_bytes for part in topic.partitions} == {share}
    assert len(topic.partitions) == count


def test_a_partition_with_much_buffered_is_left_out():
    fixture = Fixture(partition_max_bytes=300)
    fixture.answer(fixture.fetch(), 0, make_batch(0, 1, 600))
    assert fixture.would_ask() == {(1, 0)}
    fixture.take()
    assert fixture.would_ask() == {(0, 1), (1, 0)}


def test_no_partition_is_in_two_fetches_at_a_time():
    fixture = Fixture()
    first = fixture.fetch()
    assert fixture.would_ask() == set()
    fixture.state(1).move_to(7)  # the answer under way is of no use any more
    assert fixture.would_ask() == {(1, 7)}
    fixture.answer(first, 0, make_batch(0))
    assert fixture.would_ask() == {(0, 1), (1, 7)}


def test_more_is_asked_for_when_half_is_used_up():
    fixture = Fixture(partition_max_bytes=200, view=ONE_BROKER)
    for offset in range(2):
        fetch = fixture.fetch()
        batch = make_batch(offset, 1, 100)
        parts = [
            PartitionData(partition_index=partition, error_code=0, high_watermark=100, records=batch)
            for partition in range(3)
        ]
        fixture.fetcher.on_response(
            fetch, FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=parts)])
        )
    full = fixture.fetcher.buffered_bytes
    assert fixture.would_ask() == set()
    for taken in range(1, 4):
        assert not fixture.fetcher.wants_fetch
        assert fixture.would_ask() == set()
        fixture.take()
        assert fixture.fetcher.buffered_bytes == full - taken * full // 6
    assert fixture.fetcher.wants_fetch
    assert fixture.would_ask() == {(0, 2), (1, 2), (2, 2)}


def test_a_partition_that_is_used_up_is_asked_for_at_once():
    fixture = Fixture(partition_max_bytes=300)
    fixture.answer(fixture.fetch(), 0, make_batch(0, 1, 5_000))
    fixture.answer(fixture.fetch(), 1, make_batch(0, 1, 10))
    assert fixture.fetch() is None
    assert fixture.take(lambda tp: tp.partition == 1)
    assert fixture.fetcher.wants_fetch
    assert fixture.would_ask() == {(1, 1)}


def test_what_was_fetched_before_a_seek_is_not_handed_out():
    fixture = Fixture()
    fixture.answer(fixture.fetch(), 0, make_batch(0))
    under_way = fixture.fetch()
    fixture.state().move_to(50)
    fixture.answer(under_way, 0, make_batch(1))
    assert fixture.take() is None
    assert fixture.fetcher.buffered_bytes == 0
    assert (0, 50) in fixture.would_ask()


def test_what_was_fetched_of_a_partition_that_is_gone_is_dropped():
    fixture = Fixture()
    under_way = fixture.fetch()
    fixture.answer(under_way, 0, make_batch(0))
    fixture.subscription.replace([TopicPartition("t", 1)])
    fixture.fetcher.drop_stale()
    assert fixture.fetcher.buffered_bytes == 0
    assert fixture.take() is None


def test_chunks_of_paused_partitions_wait_for_resume():
    fixture = Fixture()
    fixture.answer(fixture.fetch(), 0, make_batch(0))
    fixture.state().paused = True
    assert not fixture.fetcher.has_chunk(lambda tp: True)
    assert fixture.take() is None
    fixture.state().paused = False
    assert fixture.take().next_offset == 1


def test_a_reader_takes_only_what_it_accepts():
    fixture = Fixture()
    fetch = fixture.fetch()
    fixture.answer(fetch, 0, make_batch(0))
    assert fixture.take(lambda tp: tp.partition == 1) is None
    assert fixture.take(lambda tp: tp.partition == 0) is not None


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_leader_that_has_moved_is_looked_up_again(code):
    fixture = Fixture()
    assert fixture.answer(fixture.fetch(), 0, error=code)
    assert fixture.fetcher.take_error() is None


def test_an_offset_out_of_range_is_reset_by_the_policy():
    fixture = Fixture(policy="latest")
    fixture.answer(fixture.fetch(), 0, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert fixture.subscription.without_position() == [fixture.state()]
    assert fixture.state().reset == "latest"


def test_without_policy_an_offset_out_of_range_is_nowhere():
    fixture = Fixture(policy="none")
    fixture.answer(fixture.fetch(), 0, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert fixture.subscription.without_offset() == [("t", 0)]


def test_records_at_hand_come_before_the_reset():
    fixture = Fixture(policy="earliest")
    fixture.answer(fixture.fetch(), 0, make_batch(0))
    fixture.answer(fixture.fetch(), 0, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert fixture.take().next_offset == 1


def test_other_errors_are_told():
    fixture = Fixture()
    fixture.answer(fixture.fetch(), 0, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    error = fixture.fetcher.take_error()
    assert isinstance(error, ApiError)
    assert "t-0 at offset 0" in str(error)


def test_bytes_without_a_whole_batch_are_told_and_not_kept():
    fixture = Fixture()
    fixture.answer(fixture.fetch(), 0, make_batch(0)[:40])
    error = fixture.fetcher.take_error()
    assert isinstance(error, CorruptBatchError)
    assert fixture.fetcher.buffered_bytes == 0


@pytest.mark.parametrize("answer", [{"error": ErrorCode.CORRUPT_MESSAGE}, {"records": make_batch(0)[:40]}])
def test_a_partition_with_an_error_is_left_alone_until_the_error_was_taken(answer):
    fixture = Fixture()
    assert fixture.answer(fixture.fetch(), 0, **answer)
    assert fixture.would_ask() == {(1, 0)}
    assert fixture.fetcher.take_error() is not None
    assert fixture.fetcher.take_error() is None
    assert fixture.would_ask() == {(0, 0), (1, 0)}


def test_a_seek_past_an_error_makes_it_moot():
    fixture = Fixture()
    fixture.answer(fixture.fetch(), 0, error=ErrorCode.CORRUPT_MESSAGE)
    fixture.state().move_to(1)
    fixture.fetcher.drop_stale()
    assert fixture.would_ask() == {(0, 1), (1, 0)}
    assert fixture.fetcher.take_error() is None


def test_an_offset_out_of_range_is_not_asked_for_again_before_records_at_hand_are_used_up():
    fixture = Fixture(policy="earliest")
    fixture.answer(fixture.fetch(), 0, make_batch(0))
    fixture.answer(fixture.fetch(), 0, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert fixture.would_ask() == {(1, 0)}
    fixture.state().position = fixture.take().next_offset
    again = fixture.fetch()
    assert offsets_asked(again) == {(0, 1), (1, 0)}
    fixture.answer(again, 0, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert fixture.state().validation_cause == OUT_OF_RANGE, (
        "the leader is asked first whether it has truncated the log"
    )


def test_a_fetch_that_fails_frees_its_reservation():
    fixture = Fixture(buffer_bytes_max=2_000)
    for _ in range(5):
        fixture.fetcher.on_failure(fixture.fetch())
    assert fixture.fetch() is not None


def test_an_answer_that_is_an_error_frees_its_reservation_once():
    fixture = Fixture(buffer_bytes_max=2_500)
    for _ in range(5):
        fetch = fixture.fetch()
        with pytest.raises(ApiError):
            fixture.fetcher.on_response(fetch, FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, responses=[]))
        fixture.fetcher.on_failure(fetch)
    assert fixture.fetch(1).request.max_bytes == 1_250
    assert fixture.fetch(2).request.max_bytes == 1_000
    fixture.state(2).move_to(1)
    assert fixture.fetch(2) is None  # no more room than there ever was


def test_the_last_fetch_to_a_broker_waits_but_shortly_so_that_no_partition_is_forgotten():
    fixture = Fixture(view=ONE_BROKER)
    fetches = []
    for partition in range(3):
        for other in range(3):
            fixture.state(other).paused = other != partition
        fetches.append(fixture.fetch())
    assert [fetch.request.max_wait_ms for fetch in fetches] == [500, 500, 20]
    fixture.answer(fetches[0])
    fixture.state(0).paused = False
    assert fixture.fetch().request.max_wait_ms == 20  # two others wait still
    fixture.fetcher.on_failure(fetches[1])
    fixture.fetcher.on_failure(fetches[2])
    fixture.state(1).paused = False
    assert fixture.fetch().request.max_wait_ms == 500
