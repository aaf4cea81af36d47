"""Settings of logs under Kafka's names."""

from __future__ import annotations

import pytest

from barnabas.errors import ConfigurationError
from barnabas.model import TimestampType
from barnabas.storage import LogConfig


def test_topic_settings_override_the_defaults() -> None:
    config = LogConfig().override(
        {
            "segment.bytes": "1000",
            "flush.messages": "1",
            "message.timestamp.type": "LogAppendTime",
            "flush.ms": None,
        }
    )
    assert config == LogConfig(
        segment_bytes=1000, flush_messages=1, message_timestamp_type=TimestampType.LOG_APPEND_TIME
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"segment.byte": "1"}, "unknown topic setting 'segment.byte'; there are cleanup.policy"),
        ({"segment.bytes": "many"}, "segment.bytes is 'many'; it must be a whole number"),
        ({"segment.bytes": "1"}, "segment.bytes is 1; it must be from 14 to 2147483647"),
        ({"cleanup.policy": "delete,keep"}, "cleanup.policy is 'delete,keep'; it can be delete, compact, or both"),
        ({"message.timestamp.type": "Never"}, "it can be CreateTime or LogAppendTime"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        LogConfig().override(settings)


@pytest.mark.parametrize(
    ("text", "is_compacted", "deletes_old"),
    [("delete", False, True), ("compact", True, False), ("compact, delete", True, True)],
)
def test_old_segments_are_compacted_or_deleted_or_both(text: str, is_compacted: bool, deletes_old: bool) -> None:
    config = LogConfig().override({"cleanup.policy": text})
    assert (config.is_compacted, config.deletes_old) == (is_compacted, deletes_old)
