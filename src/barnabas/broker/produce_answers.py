"""The answers to Produce: made one by one, or, where requests differ in nothing else, from a pattern.

What has to be waited for before an acknowledgement stands in `barnabas.broker.leader_replica`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeAlias

from barnabas.broker.acknowledgements import Waiter
from barnabas.broker.error_codes import error_code, error_message
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import NO_OFFSET, NO_TIMESTAMP
from barnabas.protocol.codec import response_template_encoder
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.storage.log_appender import AppendInfo, InvalidRecordsError

Waiting = list[tuple[PartitionProduceResponse, Waiter]]
"""Acknowledgements, and what each has to wait for."""

RECORD_ERRORS_MAX = 1_000
"""Errors of single records in one answer; a batch may have millions of records in a few bytes."""

PACKERS_MAX = 4096
"""For how many partitions the pattern of an answer is remembered, at about a kilobyte each."""

Response: TypeAlias = "ProduceResponse | bytes | Awaitable[ProduceResponse | bytes | None] | None"
"""To one request; bytes are the whole frame of the answer."""

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

    return response_template_encoder(answer_with, version)


class Acknowledgement:
    """Ends with a response when what it acknowledges is safe, or the time is up; then the response says what is not.

    Nothing begins to wait before somebody waits for it.
    """

    __slots__ = ("_response", "_timeout_ms", "_waiting")

    def __init__(self, response: ProduceResponse, waiting: Waiting, timeout_ms: int) -> None:
        self._response = response
        self._waiting = waiting
        self._timeout_ms = timeout_ms

    def __await__(self) -> Generator[Any, None, ProduceResponse]:
        return self._wait().__await__()

    async def _wait(self) -> ProduceResponse:
        futures = [future for _, future in self._waiting]
        try:
            await asyncio.wait(futures, timeout=max(0, self._timeout_ms) / 1000)
        finally:
            for future in futures:
                future.cancel()
        for result, future in self._waiting:
            if future.cancelled():
                refuse(result, _timed_out(self._timeout_ms))
            elif error := future.exception():
                assert isinstance(error, BarnabasError)
                refuse(result, error)
        return self._response


class Settling:
    """Ends with the responses to some requests of a run. Nothing begins to wait before somebody waits for it.

    :param responses: those responses, or what ends with them. The awaitable ones among them are waited for.
    """

    __slots__ = ("_responses",)

    def __init__(self, responses: Sequence[Response] | asyncio.Future[Sequence[Response]]) -> None:
        self._responses = responses

    def __await__(self) -> Generator[Any, None, list[ProduceResponse | bytes | None]]:
        return self._settle().__await__()

    async def _settle(self) -> list[ProduceResponse | bytes | None]:
        responses = self._responses
        if isinstance(responses, asyncio.Future):
            responses = await asyncio.shield(responses)
        waiting = [each for each in responses if isinstance(each, Awaitable)]
        settled = iter([await waiting[0]] if len(waiting) == 1 else await asyncio.gather(*waiting))
        return [next(settled) if isinstance(each, Awaitable) else each for each in responses]


def refuse(result: PartitionProduceResponse, error: BarnabasError) -> None:
    """Let a result say that its batch was not appended, or is not acknowledged."""
    result.error_code, result.error_message = error_code(error), error_message(error)
    result.base_offset = result.log_start_offset = NO_OFFSET
    result.log_append_time_ms = NO_TIMESTAMP


def errors_of_records(error: InvalidRecordsError, request: ProduceRequest) -> list[BatchIndexAndErrorMessage]:
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

    def refusal(self, error: BarnabasError) -> ProduceResponse:
        """Return the response that tells why it is not acknowledged."""
        topic = self.request.topic_data[0]
        result = PartitionProduceResponse(
            index=topic.partition_data[0].index, error_code=ErrorCode.NONE, base_offset=NO_OFFSET
        )
        refuse(result, error)
        named = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[result])
        return ProduceResponse(responses=[named])


async def respond_together(
    appended: Sequence[Appended], waiters: Sequence[Waiter]
) -> Sequence[bytes | ProduceResponse]:
    """Return the responses to requests that all wait for the same; they fail together too."""
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
        return [each.frame() for each in appended]
    finally:
        for waiter in waiters:
            if not waiter.cancel() and not waiter.cancelled():
                waiter.exception()  # else it would be reported as an error that nobody has looked at
    return [each.refusal(error) for each in appended]


def _timed_out(timeout_ms: int) -> ApiError:
    message = f"not flushed and replicated within {timeout_ms} ms; it may be later"
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, message)
