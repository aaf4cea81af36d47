"""The answers to Produce: made one by one, or, where requests differ in nothing else, from a pattern.

What has to be waited for before an acknowledgement stands in `barnabas.broker.partition`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, NamedTuple

from barnabas.broker.acknowledgements import Waiter
from barnabas.broker.error_codes import error_code, error_message
from barnabas.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.model import NO_OFFSET, NO_TIMESTAMP
from barnabas.protocol.frames import response_frame
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.protocol.repeats import answer_packer
from barnabas.storage.append import AppendInfo, RecordRefusedError

Waiting = list[tuple[PartitionProduceResponse, Waiter]]
"""Acknowledgements, and what each has to wait for."""

RECORD_ERRORS_MAX = 1_000
"""Errors of single records in one answer; a batch may have millions of records in a few bytes."""

PACKERS_MAX = 4096
"""For how many partitions the pattern of an answer is remembered, at about a kilobyte each."""

PackAnswer = Callable[[int, int, int, int], bytes]
"""Makes the frame that says that a batch was appended: of correlation id, base offset, append time, log start."""


@functools.lru_cache(maxsize=PACKERS_MAX)
def packer(version: int, topic: str, topic_id: bytes, index: int) -> PackAnswer:
    """Return what makes the answers to requests for one partition."""

    def answer_with(number: int) -> ProduceResponse:
        result = PartitionProduceResponse(
            index=index,
            error_code=ErrorCode.NONE,
            base_offset=number,
            log_append_time_ms=number,
            log_start_offset=number,
        )
        return ProduceResponse(
            responses=[TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=[result])]
        )

    return answer_packer(answer_with, version)


async def acknowledge_later(response: ProduceResponse, waiting: Waiting, timeout_ms: int) -> ProduceResponse:
    """Return a response when what it acknowledges is safe, or the time is up; then it says what is not."""
    futures = [future for _, future in waiting]
    try:
        await asyncio.wait(futures, timeout=max(0, timeout_ms) / 1000)
    finally:
        for future in futures:
            future.cancel()
    for result, future in waiting:
        if future.cancelled():
            refuse(result, _timed_out(timeout_ms))
        elif error := future.exception():
            assert isinstance(error, BarnabasError)
            refuse(result, error)
    return response


class InLine:
    """The response to one request of a run whose batches wait in line for their logs.

    :param appending: ends with the responses to all requests of the run.
    """

    __slots__ = ("_number", "appending")

    def __init__(self, appending: asyncio.Task[Sequence[Any]], number: int) -> None:
        self.appending = appending
        self._number = number

    def __await__(self) -> Generator[Any, None, ProduceResponse | bytes | None]:
        return self._wait().__await__()

    async def _wait(self) -> ProduceResponse | bytes | None:
        response: ProduceResponse | bytes | Awaitable[ProduceResponse | bytes | None] | None
        response = (await asyncio.shield(self.appending))[self._number]
        return await response if isinstance(response, Awaitable) else response


def refuse(result: PartitionProduceResponse, error: BarnabasError) -> None:
    """Let a result say that its batch was not appended, or is not acknowledged."""
    result.error_code, result.error_message = error_code(error), error_message(error)
    result.base_offset = result.log_start_offset = NO_OFFSET
    result.log_append_time_ms = NO_TIMESTAMP


def errors_of_records(error: RecordRefusedError, request: ProduceRequest) -> list[BatchIndexAndErrorMessage]:
    """Return what to say of the records for which a batch was refused."""
    count_max = max(1, RECORD_ERRORS_MAX // sum(len(topic.partition_data) for topic in request.topic_data))
    return [
        BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=error.reason)
        for number in error.numbers[:count_max]
    ]


class Appended(NamedTuple):
    """A request for one partition whose batch is in the log."""

    request: ProduceRequest
    correlation_id: int
    info: AppendInfo
    pack: PackAnswer

    def frame(self) -> bytes:
        """Return the whole frame of the answer that acknowledges it."""
        info = self.info
        return self.pack(self.correlation_id, info.base_offset, info.log_append_time_ms, info.log_start_offset)

    def refusal(self, version: int, error: BarnabasError) -> bytes:
        """Return the whole frame of the answer that tells why it is not acknowledged."""
        topic = self.request.topic_data[0]
        result = PartitionProduceResponse(
            index=topic.partition_data[0].index, error_code=ErrorCode.NONE, base_offset=NO_OFFSET
        )
        refuse(result, error)
        named = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[result])
        chunks = response_frame(ProduceResponse(responses=[named]), version, self.correlation_id)
        return b"".join(chunks)  # type: ignore[arg-type]  # there are no file regions in it


async def answer_together(appended: Sequence[Appended], waiters: Sequence[Waiter], version: int) -> bytes:
    """Return the frames of the answers to requests that all wait for the same; they fail together too."""
    timeout_ms = appended[0].request.timeout_ms
    try:
        async with asyncio.timeout(max(0, timeout_ms) / 1000):
            for waiter in waiters:
                await waiter
    except TimeoutError:
        error: BarnabasError = _timed_out(timeout_ms)
    except BarnabasError as failure:
        error = failure
    else:
        return b"".join([each.frame() for each in appended])
    finally:
        for waiter in waiters:
            if not waiter.cancel() and not waiter.cancelled():
                waiter.exception()  # else it would be reported as an error that nobody has looked at
    return b"".join([each.refusal(version, error) for each in appended])


def _timed_out(timeout_ms: int) -> KafkaError:
    message = f"not flushed and replicated within {timeout_ms} ms; it may be later"
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)
