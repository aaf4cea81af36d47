"""Whether a batch's timestamps are believable (KIP-937). Pure; looks at the batch's header alone.

Kafka checks each record. Here the first record's timestamp says how old a batch is, and the greatest one how far it is
ahead of the clock; an old record behind a newer one is not noticed.
"""

from __future__ import annotations

from barnabas.errors import ApiError, ErrorCode
from barnabas.model import NO_TIMESTAMP, TimestampType
from barnabas.records.header import BatchHeader
from barnabas.storage.log_config import LogConfig


def check_timestamps(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Check that a producer's timestamps are as near to the broker's clock as the log asks.

    Where the broker's clock stamps the batches (`message.timestamp.type`), the producer's do not matter. A batch
    without timestamps is taken.

    :raises ApiError: INVALID_TIMESTAMP.
    """
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return
    first_ms, greatest_ms = header.base_timestamp_ms, header.max_timestamp_ms
    if greatest_ms - now_ms > config.message_timestamp_after_max_ms:
        message = (
            f"timestamp {greatest_ms} is {greatest_ms - now_ms} ms ahead of the broker's clock;"
            f" message.timestamp.after.max.ms is {config.message_timestamp_after_max_ms}"
        )
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, message)
    if first_ms != NO_TIMESTAMP and now_ms - first_ms > config.message_timestamp_before_max_ms:
        message = (
            f"timestamp {first_ms} is {now_ms - first_ms} ms behind the broker's clock;"
            f" message.timestamp.before.max.ms is {config.message_timestamp_before_max_ms}"
        )
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, message)
