"""Produce, versions 0 to 9: append record batches.

Versions 0 to 2 are advertised because librdkafka stops compressing without them (KAFKA-18659); their message
formats are not stored, so every partition is answered with UNSUPPORTED_VERSION. Batches of transactions are
refused until transactions exist. Errors of single records are not told (version 8): the broker does not look at
single records.

What an acknowledgement means, and when it has to wait for the disk, stands in `barnabas.broker.partition`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.broker.api import Context, serves
from barnabas.broker.error_codes import error_code, error_message
from barnabas.errors import (
    BarnabasError,
    ErrorCode,
    KafkaError,
    UnsupportedVersionError,
)
from barnabas.model import NO_OFFSET, NO_TIMESTAMP, Acks
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from barnabas.broker.broker import Broker

    Waiting = list[tuple[PartitionProduceResponse, asyncio.Future[None]]]
    """Acknowledgements, and what each has to wait for."""

FIRST_VERSION_WITH_BATCHES = 3


@serves(ProduceRequest)
def produce(
    broker: Broker, request: ProduceRequest, context: Context
) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    """Append each partition's batches.

    :raises BarnabasError: an append failed and acks=0 leaves no other way to tell than to end the connection.
    """
    refusal = _refusal(request, context)
    topics = []
    waiting: Waiting = []
    for topic in request.topic_data:
        results = []
        for data in topic.partition_data:
            result = _refused(data, refusal) if refusal else _append(broker, topic.name, data, request.acks, waiting)
            results.append(result)
        topics.append(TopicProduceResponse(name=topic.name, partition_responses=results))
    if request.acks != Acks.NONE:
        response = ProduceResponse(responses=topics)
        return _acknowledge_later(response, waiting, request.timeout_ms) if waiting else response
    _check_all_appended(topics)
    return None


async def _acknowledge_later(response: ProduceResponse, waiting: Waiting, timeout_ms: int) -> ProduceResponse:
    futures = [future for _, future in waiting]
    try:
        await asyncio.wait(futures, timeout=max(0, timeout_ms) / 1000)
    finally:
        for future in futures:
            future.cancel()
    for result, future in waiting:
        if future.cancelled():
            message = f"not flushed within {timeout_ms} ms; it may be later"
            _refuse(result, KafkaError(ErrorCode.REQUEST_TIMED_OUT, message))
        elif error := future.exception():
            assert isinstance(error, BarnabasError)
            _refuse(result, error)
    return response


def _refusal(request: ProduceRequest, context: Context) -> BarnabasError | None:
    """Return why nothing of the request can be appended, or None."""
    if context.version < FIRST_VERSION_WITH_BATCHES:
        return UnsupportedVersionError("message formats before record batches (Kafka 0.11) are not stored")
    if request.acks not in {Acks.NONE, Acks.LEADER, Acks.ALL}:
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is 0, 1 or -1 (all), not {request.acks}")
    if request.transactional_id is not None:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions are not served")
    return None


def _append(
    broker: Broker, topic: str, data: PartitionProduceData, acks: int, waiting: Waiting
) -> PartitionProduceResponse:
    try:
        partition = broker.topics.partition(topic, data.index)
        if data.records is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "no record batch")
        if acks == Acks.ALL:
            partition.check_replicas()
        info, exposed = partition.append(data.records, acks)
    except BarnabasError as error:
        return _refused(data, error)
    result = PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=info.base_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )
    if exposed:
        waiting.append((result, exposed))
    return result


def _refused(data: PartitionProduceData, error: BarnabasError) -> PartitionProduceResponse:
    result = PartitionProduceResponse(index=data.index, error_code=ErrorCode.NONE, base_offset=NO_OFFSET)
    _refuse(result, error)
    return result


def _refuse(result: PartitionProduceResponse, error: BarnabasError) -> None:
    result.error_code, result.error_message = error_code(error), error_message(error)
    result.base_offset = result.log_start_offset = NO_OFFSET
    result.log_append_time_ms = NO_TIMESTAMP


def _check_all_appended(topics: list[TopicProduceResponse]) -> None:
    """Raise the first error: without acknowledgements, the end of the connection is what the producer notices."""
    for topic in topics:
        for result in topic.partition_responses:
            if result.error_code:
                where = f"{topic.name}-{result.index}"
                raise KafkaError(result.error_code, f"{where}, sent with acks=0: {result.error_message}")
