"""What is sent when, and what answers mean. The property test of the same name covers the mishaps."""

from __future__ import annotations

import pytest

from barnabas.client.backoff import Backoff
from barnabas.client.producer.accumulator import Accumulator
from barnabas.client.producer.sender import POST_PAUSE_S, Sender
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, DisconnectedError, ErrorCode, TimedOutError, UnsupportedVersionError
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.records import Compression, read_header


class Fixture:
    def __init__(self, *, idempotent=False, leaders=None, acks=1, in_flight_max=5, retries=10, request_bytes=10_000):
        self.clock = ManualClock()
        self.leaders = {0: 1, 1: 1, 2: 2} if leaders is None else leaders
        self.accumulator = Accumulator(
            batch_size=1000,
            buffer_memory=10**6,
            linger_s=1.0,
            max_block_s=0.0,
            max_record_bytes=10**5,
            compression=Compression.NONE,
            clock=self.clock,
            wake=lambda: None,
            random=lambda: 0.0,
        )
        self.topic = self.accumulator.set_partitions("t", 3, range(3))
        self.sender = Sender(
            self.accumulator,
            leader_of=lambda tp: self.leaders.get(tp.partition),
            run=lambda callbacks: [callback() for callback in callbacks],
            acks=acks,
            idempotent=idempotent,
            batch_size=1000,
            linger_s=1.0,
            in_flight_max=in_flight_max,
            request_bytes_max=request_bytes,
            request_timeout_ms=30_000,
            delivery_timeout_s=120.0,
            retries_max=retries,
            backoff=Backoff(100, 100, lambda: 0.5),
        )

    def append(self, partition=0, size=10):
        return self.accumulator.append(self.topic, partition, 1, None, bytes(size), ())[0]

    def plan(self, advance_s=0.0):
        self.clock.advance(advance_s)
        return self.sender.plan(self.clock.monotonic())

    def answer(self, send, code=ErrorCode.NONE, base_offset=0, message=None):
        answers = [
            PartitionProduceResponse(
                index=batch.partition, error_code=code, base_offset=base_offset, error_message=message
            )
            for batch in send.batches
        ]
        response = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=answers)])
        return self.sender.on_response(send, response, self.clock.monotonic())


def test_a_lone_batch_leaves_at_once():
    fixture = Fixture()
    batch = fixture.append()
    [send] = fixture.plan().sends
    assert (send.node_id, send.batches) == (1, [batch])


def test_records_gather_while_a_request_is_under_way_and_leave_together_when_it_is_answered():
    fixture = Fixture()
    fixture.append()
    [send] = fixture.plan().sends
    fixture.append(partition=0)
    fixture.clock.advance(0.1)
    fixture.append(partition=1)
    plan = fixture.plan()
    assert not plan.sends
    assert plan.wake_at_s == 1.0
    fixture.answer(send)
    [send] = fixture.plan(0.1).sends
    assert [batch.partition for batch in send.batches] == [0, 1]


def test_requests_to_one_broker_hold_up_no_batch_for_another():
    fixture = Fixture()
    fixture.append(partition=0)
    assert fixture.plan().sends
    batch = fixture.append(partition=2)
    [send] = fixture.plan().sends
    assert (send.node_id, send.batches) == (2, [batch])


def test_no_batch_waits_longer_than_the_linger():
    fixture = Fixture()
    fixture.append()
    fixture.plan()
    batch = fixture.append()
    assert not fixture.plan(0.9).sends
    [send] = fixture.plan(0.1).sends
    assert send.batches == [batch]


def test_a_batch_that_somebody_waits_for_does_not_linger():
    fixture = Fixture()
    fixture.append()
    fixture.plan()
    batch = fixture.append()
    fixture.accumulator.stop_lingering(batch)
    [send] = fixture.plan().sends
    assert send.batches == [batch]


def test_a_full_batch_leaves_at_once_alone():
    fixture = Fixture()
    fixture.append()
    fixture.plan()
    full = fixture.append(size=900)
    fixture.append(size=900)
    fixture.append(partition=1)
    [send] = fixture.plan().sends
    assert send.batches == [full]


def test_in_a_flood_an_open_batch_waits_to_become_full():
    fixture = Fixture()
    for _ in range(3):
        fixture.append(size=900)
    first, second = fixture.plan(0.5).sends
    for _ in range(2):
        fixture.append(size=900)
    third, fourth = fixture.plan(0.1).sends  # 2 batches in 0.1 s
    for send in (first, second, third, fourth):
        fixture.answer(send)
    plan = fixture.plan(0.1)
    assert not plan.sends
    assert plan.wake_at_s == 1.5  # when it will have lingered
    fixture.append(size=900)
    assert len(fixture.plan().sends) == 1


def test_after_a_flood_a_lone_batch_leaves_at_once_again():
    fixture = Fixture()
    for _ in range(3):
        fixture.append(size=900)
    sends = fixture.plan(0.5).sends + fixture.plan(1.1).sends
    assert len(sends) == 3
    for send in sends:
        fixture.answer(send)
    fixture.append()
    assert fixture.plan(1.1).sends


def test_without_acks_small_requests_are_a_pause_apart():
    fixture = Fixture(acks=0)
    fixture.append()
    [send] = fixture.plan(1.0).sends
    fixture.sender.on_sent_unacknowledged(send)
    fixture.append()
    plan = fixture.plan()
    assert not plan.sends
    assert plan.wake_at_s == 1.0 + POST_PAUSE_S
    assert fixture.plan(POST_PAUSE_S).sends


def test_batches_for_one_broker_travel_together_when_one_has_lingered():
    fixture = Fixture()
    fixture.append(partition=0)
    fixture.append(partition=2)
    assert len(fixture.plan().sends) == 2
    fixture.append(partition=0)
    fixture.clock.advance(0.9)
    fixture.append(partition=1)
    fixture.append(partition=2)
    [send] = fixture.plan(0.1).sends
    assert [batch.partition for batch in send.batches] == [0, 1]
    [send] = fixture.plan(0.9).sends
    assert (send.node_id, [batch.partition for batch in send.batches]) == (2, [2])


def test_no_more_requests_are_under_way_than_allowed():
    fixture = Fixture(in_flight_max=2)
    for _ in range(5):
        fixture.append(size=900)
    plan = fixture.plan()
    assert len(plan.sends) == 2
    assert plan.held_back
    assert not fixture.sender.may_send_to(1)
    assert not fixture.plan().sends
    fixture.answer(plan.sends[0])
    assert fixture.sender.may_send_to(1)
    assert len(fixture.plan().sends) == 1


def test_a_request_is_not_larger_than_allowed():
    fixture = Fixture(request_bytes=1500)
    for partition in (0, 1):
        fixture.append(partition, size=900)
        fixture.append(partition, size=900)
    assert [len(send.batches) for send in fixture.plan().sends] == [1, 1]


def test_partitions_without_leader_ask_for_metadata():
    fixture = Fixture(leaders={0: 1})
    fixture.append(partition=2)
    plan = fixture.plan(1.0)
    assert plan.topics_to_refresh == {"t"}
    assert not plan.sends


def test_an_acknowledgement_settles_the_batch():
    fixture = Fixture()
    batch = fixture.append()
    [send] = fixture.plan(1.0).sends
    assert fixture.answer(send, base_offset=42) == set()
    assert batch.done
    assert batch.base_offset == 42
    assert fixture.accumulator.used_bytes == 0


def test_without_acks_a_batch_is_done_when_it_is_posted():
    fixture = Fixture(acks=0)
    batch = fixture.append()
    [send] = fixture.plan(1.0).sends
    fixture.sender.on_sent_unacknowledged(send)
    assert batch.done
    assert batch.base_offset == -1


def test_an_error_that_passes_is_tried_again_after_a_wait_and_asks_for_the_leader():
    fixture = Fixture()
    batch = fixture.append()
    [send] = fixture.plan(1.0).sends
    assert fixture.answer(send, ErrorCode.NOT_LEADER_OR_FOLLOWER) == {"t"}
    plan = fixture.plan()
    assert not plan.sends
    assert plan.wake_at_s == pytest.approx(1.1)
    [send] = fixture.plan(0.1).sends
    assert send.batches == [batch]


def test_an_error_that_does_not_pass_fails_the_batch_and_names_the_partition():
    fixture = Fixture()
    batch = fixture.append()
    [send] = fixture.plan(1.0).sends
    fixture.answer(send, ErrorCode.INVALID_REQUIRED_ACKS, message="no")
    assert isinstance(batch.error, ApiError)
    assert str(batch.error) == "INVALID_REQUIRED_ACKS: 1 record for t-0: no"


def test_retries_end():
    fixture = Fixture(retries=1)
    batch = fixture.append()
    for _ in range(2):
        [send] = fixture.plan(1.0).sends
        fixture.sender.on_failure(send, DisconnectedError("gone"), fixture.clock.monotonic())
    assert isinstance(batch.error, DisconnectedError)


def test_a_failure_that_does_not_pass_is_final():
    fixture = Fixture()
    batch = fixture.append()
    [send] = fixture.plan(1.0).sends
    fixture.sender.on_failure(send, UnsupportedVersionError("old"), fixture.clock.monotonic())
    assert isinstance(batch.error, UnsupportedVersionError)


def test_a_batch_too_old_fails_with_the_last_trouble():
    fixture = Fixture()
    batch = fixture.append()
    [send] = fixture.plan(1.0).sends
    fixture.sender.on_failure(send, DisconnectedError("a:1 is gone"), fixture.clock.monotonic())
    fixture.plan(119.0)
    assert isinstance(batch.error, TimedOutError)
    assert str(batch.error).endswith(
        "not acknowledged within delivery_timeout_ms=120000: 1 s in the producer's queue, "
        "then 119 s in tries, of which there were 1; it may yet be stored: a:1 is gone"
    )


def test_a_batch_is_given_up_in_time_while_its_request_goes_on_for_the_others():
    fixture = Fixture()
    old = fixture.append()
    fixture.clock.advance(119.0)
    young = fixture.append(partition=1)
    [send] = fixture.plan().sends
    assert send.batches == [old, young]
    assert fixture.plan().wake_at_s == 120.0
    fixture.plan(1.0)
    assert "119 s in the producer's queue, then 1 s in flight to broker 1 (try 1); it may yet" in str(old.error)
    assert not young.done
    assert fixture.sender.in_flight_to(1) == 1
    assert fixture.plan().wake_at_s == 239.0
    fixture.answer(send, base_offset=7)
    assert young.base_offset == 7
    assert isinstance(old.error, TimedOutError)
    assert fixture.accumulator.used_bytes == 0
    assert fixture.sender.in_flight_to(1) == 0


def test_a_batch_that_was_never_sent_says_that_and_no_trouble_of_before():
    fixture = Fixture(in_flight_max=1)
    fixture.append()
    [send] = fixture.plan().sends
    fixture.sender.on_failure(send, DisconnectedError("gone"), fixture.clock.monotonic())
    [send] = fixture.plan(1.0).sends
    batch = fixture.append(size=900)
    fixture.plan(120.0)
    assert "120 s in the producer's queue, never sent; the broker is slow, or" in str(batch.error)
    assert "gone" not in str(batch.error)


def test_what_is_given_up_while_under_way_keeps_no_epoch_from_beginning():
    fixture = Fixture(idempotent=True, acks=-1)
    fixture.sender.set_identity(77, 0)
    fixture.append()
    fixture.answer(fixture.plan().sends[0])
    lost = fixture.append()
    [stuck] = fixture.plan().sends
    fixture.clock.advance(119.0)
    fixture.leaders[0] = 2
    batch = fixture.append(size=900)
    [send] = fixture.plan().sends
    fixture.plan(1.0)
    assert lost.failed
    fixture.answer(send, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    [again] = fixture.plan().sends
    header = read_header(again.batches[0].payload())
    assert (header.producer_epoch, header.base_sequence) == (1, 0)
    fixture.answer(again)
    assert batch.error is None
    fixture.answer(stuck, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert not fixture.plan().sends


def test_a_loss_that_nobody_asks_about_is_logged(caplog):
    fixture = Fixture()
    fixture.append()
    watched = fixture.append(partition=1)
    watched.watched = True
    fixture.sender.fail_all(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
    said = [message for name, _, message in caplog.record_tuples if name == Sender.__module__]
    assert said == ["the producer lost 1 record for t-0: UNKNOWN_SERVER_ERROR"]


def test_nothing_is_sent_before_the_producer_id_is_there():
    fixture = Fixture(idempotent=True, acks=-1)
    fixture.append()
    assert fixture.sender.needs_identity
    assert not fixture.plan(1.0).sends
    fixture.sender.set_identity(77, 3)
    [send] = fixture.plan().sends
    header = read_header(send.batches[0].payload())
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 0)


def test_a_retry_sends_the_same_bytes():
    fixture = Fixture(idempotent=True, acks=-1)
    fixture.sender.set_identity(77, 0)
    fixture.append()
    [send] = fixture.plan(1.0).sends
    before = bytes(send.batches[0].payload())
    fixture.sender.on_failure(send, DisconnectedError("x"), fixture.clock.monotonic())
    [again] = fixture.plan(1.0).sends
    assert bytes(again.batches[0].payload()) == before


def test_a_batch_that_came_before_an_earlier_one_is_not_sent_again_and_again():
    fixture = Fixture(idempotent=True, acks=-1)
    fixture.sender.set_identity(77, 0)
    fixture.append()
    [send] = fixture.plan(1.0).sends
    fixture.answer(send)
    fixture.append(size=100)
    [earlier] = fixture.plan(1.0).sends  # goes to a broker that does not answer
    fixture.leaders[0] = 2
    fixture.append(size=100)
    [later] = fixture.plan(1.0).sends
    fixture.answer(later, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    plan = fixture.plan()
    assert not plan.sends
    assert plan.wake_at_s == pytest.approx(fixture.clock.monotonic() + 0.1)
    [again] = fixture.plan(0.1).sends
    assert again.batches == later.batches
    assert earlier.batches != later.batches


def test_a_duplicate_is_a_success():
    fixture = Fixture(idempotent=True, acks=-1)
    fixture.sender.set_identity(77, 0)
    batch = fixture.append()
    [send] = fixture.plan(1.0).sends
    fixture.answer(send, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert batch.done
    assert batch.error is None


def test_no_answer_for_a_partition_is_an_error_of_the_server():
    fixture = Fixture(retries=0)
    batch = fixture.append()
    [send] = fixture.plan(1.0).sends
    fixture.sender.on_response(send, ProduceResponse(responses=[]), 1.0)
    assert isinstance(batch.error, ApiError)


def failing_first(fixture):
    """Return a fixture whose only batch has failed once, since the connection ended."""
    fixture.append()
    (send,) = fixture.plan(1.0).sends
    fixture.sender.on_failure(send, DisconnectedError("gone"), fixture.clock.monotonic())
    return fixture


def test_while_a_retry_waits_the_leader_is_looked_up():
    fixture = failing_first(Fixture())
    plan = fixture.plan()
    assert not plan.sends
    assert plan.topics_to_refresh == {"t"}
    plan = fixture.plan(0.2)
    assert [send.node_id for send in plan.sends] == [1]
    assert not plan.topics_to_refresh


def test_a_retry_waits_no_longer_once_another_broker_leads():
    fixture = failing_first(Fixture())
    fixture.leaders[0] = 2
    (send,) = fixture.plan().sends
    assert send.node_id == 2


def test_a_retry_waits_for_its_time_while_nobody_leads_and_when_the_same_broker_leads_again():
    fixture = failing_first(Fixture())
    for leader in (None, 1):
        fixture.leaders[0] = leader
        plan = fixture.plan()
        assert not plan.sends
        assert plan.topics_to_refresh == {"t"}


def test_trouble_that_has_nothing_to_do_with_the_leader_looks_for_no_other():
    fixture = Fixture()
    fixture.append()
    (send,) = fixture.plan(1.0).sends
    fixture.answer(send, ErrorCode.NOT_ENOUGH_REPLICAS)
    plan = fixture.plan()
    assert not plan.sends
    assert not plan.topics_to_refresh


def test_a_broker_that_calls_every_batch_out_of_order_gets_it_rarely():
    fixture = Fixture(idempotent=True, acks=-1, retries=10**6)
    fixture.sender.set_identity(77, 0)
    fixture.append()
    count = 0
    for _ in range(1_000):
        sends = fixture.plan().sends
        for send in sends:
            count += 1
            fixture.answer(send, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if not sends:
            fixture.clock.advance(0.01)
    assert 50 < count < 150, "a tenth of a second is the pause"
