"""Produce (key 0): append record batches to partitions.

Versions 0 to 2 carry older message formats; they are declared so that they can be answered (KAFKA-18659).
Version 3 is the first with record batches of format 2 and transactional ids, 5 answers with the log start offset,
8 with errors of single records (KIP-467), 9 is flexible.
"""

from __future__ import annotations

from typing import Any

from barnabas.protocol.declare import field, message, struct
from barnabas.protocol.types import INT16, INT32, INT64, RECORDS, STRING, array, nullable


@struct
class PartitionProduceData:
    index: int = field(INT32)
    records: Any = field(nullable(RECORDS))


@struct
class TopicProduceData:
    name: str = field(STRING)
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData))


@message(api_key=0, versions="0-9", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = field(nullable(STRING, since=3), since=3, default=None)
    acks: int = field(INT16)
    timeout_ms: int = field(INT32)
    topic_data: list[TopicProduceData] = field(array(TopicProduceData))


@struct
class BatchIndexAndErrorMessage:
    batch_index: int = field(INT32, since=8, default=0)
    batch_index_error_message: str | None = field(nullable(STRING, since=8), since=8, default=None)


@struct
class PartitionProduceResponse:
    index: int = field(INT32)
    error_code: int = field(INT16)
    base_offset: int = field(INT64)
    log_append_time_ms: int = field(INT64, since=2, default=-1, ignorable=True)
    log_start_offset: int = field(INT64, since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        array(BatchIndexAndErrorMessage), since=8, default_factory=list, ignorable=True
    )
    error_message: str | None = field(nullable(STRING, since=8), since=8, default=None, ignorable=True)


@struct
class TopicProduceResponse:
    name: str = field(STRING)
    partition_responses: list[PartitionProduceResponse] = field(array(PartitionProduceResponse))


@message(api_key=0, versions="0-9", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse))
    throttle_time_ms: int = field(INT32, since=1, default=0, ignorable=True)
