"""Failures are kept as values: however often one is raised, no exception grows, and none keeps a record alive."""

from __future__ import annotations

import asyncio
import pickle
import sys

import pytest

from barnabas.client.producer.accumulator import Accumulator, ProducerBatch
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, BarnabasError, ClosedError, DisconnectedError, ErrorCode, Failure, TimedOutError
from barnabas.laboratory.perf.pipelined_workload import FramePipe
from barnabas.records import BatchBuilder, Compression, Delivery

ROUNDS = 50


def frames_of(error):
    count, traceback = 0, error.__traceback__
    while traceback is not None:
        count, traceback = count + 1, traceback.tb_next
    return count


def raised_by(call, *arguments):
    """Return the frames of each of many exceptions."""
    counts = []
    for _ in range(ROUNDS):
        try:
            call(*arguments)
        except BarnabasError as error:
            counts.append(frames_of(error))
    assert len(counts) == ROUNDS
    return counts


@pytest.fixture
def accumulator():
    return Accumulator(
        batch_size=1000,
        buffer_memory=10_000,
        linger_s=0.0,
        max_block_s=0.0,
        max_record_bytes=5_000,
        compression=Compression.NONE,
        clock=ManualClock(),
        wake=lambda: None,
        random=lambda: 0.0,
    )


def test_what_a_closed_producer_refuses_is_freed(accumulator):
    topic = accumulator.set_partitions("t", 1, [0])
    accumulator.refuse(ClosedError("closed"))
    value = bytes(1000)
    references = sys.getrefcount(value)
    counts = raised_by(accumulator.append, topic, 0, 1, None, value, ())
    assert set(counts) == {counts[0]}
    assert sys.getrefcount(value) == references


@pytest.mark.parametrize(
    "error", [DisconnectedError("gone"), TimedOutError("late"), ApiError(ErrorCode.MESSAGE_TOO_LARGE, "5 MB")]
)
def test_a_delivery_that_failed_raises_an_exception_of_its_own_each_time(accumulator, error):
    batch = ProducerBatch("t", 0, (0,), 0.0, BatchBuilder(Compression.NONE), accumulator)
    batch.complete(error=error)
    delivery = Delivery(batch, 0, 0)
    counts = raised_by(delivery.result)
    assert set(counts) == {counts[0]}
    first, second = delivery.exception(), delivery.exception()
    assert first is not second
    assert (type(first), str(first)) == (type(error), str(error))
    assert getattr(first, "code", None) == getattr(error, "code", None)


def test_a_pipe_that_has_ended_raises_an_exception_of_its_own_each_time():
    async def main():
        pipe = FramePipe("a:1", lambda data: None)
        pipe.connection_lost(OSError("reset"))
        counts = raised_by(pipe.check)
        assert set(counts) == {counts[0]}

    asyncio.run(main())


def test_a_failure_is_equal_to_another_that_says_the_same():
    error = ApiError(ErrorCode.NOT_CONTROLLER, "b")
    assert Failure.of(error) == Failure.of(ApiError(6 + 35, "b"))
    assert Failure.of(error).error().retriable


@pytest.mark.parametrize(
    "error",
    [
        ApiError(ErrorCode.INVALID_CONFIG, "retention.ms is 'x'", "topic 'a'"),
        ApiError(ErrorCode.NON_EMPTY_GROUP, subject="group 'g'"),
        DisconnectedError("cannot connect to b:1: Connection refused", "Connection refused"),
        TimedOutError("no answer"),
        TimedOutError("no answer: cannot connect to b:1: Connection refused", "Connection refused"),
    ],
    ids=repr,
)
def test_an_error_is_copied_with_its_subject_and_its_reason(error: ApiError | DisconnectedError) -> None:
    for copy in (Failure.of(error).error(), pickle.loads(pickle.dumps(error))):
        assert (type(copy), str(copy), copy.reason) == (type(error), str(error), error.reason)
        assert getattr(copy, "subject", "") == getattr(error, "subject", "")
