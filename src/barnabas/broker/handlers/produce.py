"""Produce, versions 0 to 9: append record batches.

Versions 0 to 2 are advertised because librdkafka stops compressing without them (KAFKA-18659); their message
formats are not stored, so every partition is answered with UNSUPPORTED_VERSION. Batches of transactions are
refused until transactions exist. Errors of single records are not told (version 8): the broker does not look at
single records.
"""

from __future__ import annotations

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
    from barnabas.broker.broker import Broker

FIRST_VERSION_WITH_BATCHES = 3


@serves(ProduceRequest)
def produce(broker: Broker, request: ProduceRequest, context: Context) -> ProduceResponse | None:
    """Append each partition's batches.

    :raises BarnabasError: an append failed and acks=0 leaves no other way to tell than to end the connection.
    """
    refusal = _refusal(request, context)
    topics = []
    for topic in request.topic_data:
        results = []
        for data in topic.partition_data:
            result = _refused(data, refusal) if refusal else _append(broker, topic.name, data, request.acks)
            results.append(result)
        topics.append(TopicProduceResponse(name=topic.name, partition_responses=results))
    if request.acks != Acks.NONE:
        return ProduceResponse(responses=topics)
    _check_all_appended(topics)
    return None


def _refusal(request: ProduceRequest, context: Context) -> BarnabasError | None:
    """Return why nothing of the request can be appended, or None."""
    if context.version < FIRST_VERSION_WITH_BATCHES:
        return UnsupportedVersionError("message formats before record batches (Kafka 0.11) are not stored")
    if request.acks not in {Acks.NONE, Acks.LEADER, Acks.ALL}:
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is 0, 1 or -1 (all), not {request.acks}")
    if request.transactional_id is not None:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions are not served")
    return None


def _append(broker: Broker, topic: str, data: PartitionProduceData, acks: int) -> PartitionProduceResponse:
    try:
        partition = broker.topics.partition(topic, data.index)
        if data.records is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "no record batch")
        if acks == Acks.ALL:
            partition.check_replicas()
        info = partition.append(data.records)
    except BarnabasError as error:
        return _refused(data, error)
    return PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=info.base_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )


def _refused(data: PartitionProduceData, error: BarnabasError) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=data.index,
        error_code=error_code(error),
        base_offset=NO_OFFSET,
        log_append_time_ms=NO_TIMESTAMP,
        log_start_offset=NO_OFFSET,
        error_message=error_message(error),
    )


def _check_all_appended(topics: list[TopicProduceResponse]) -> None:
    """Raise the first error: without acknowledgements, the end of the connection is what the producer notices."""
    for topic in topics:
        for result in topic.partition_responses:
            if result.error_code:
                where = f"{topic.name}-{result.index}"
                raise KafkaError(result.error_code, f"{where}, sent with acks=0: {result.error_message}")
