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
        ({"segment.byte": "1"}, "unknown topic setting 'segment.byte'; valid settings: cleanup.policy, "),
        ({"segment.bytes": "many"}, "segment.bytes is 'many'; it must be a whole number"),
        ({"segment.bytes": "1"}, "segment.bytes is 1; it must be from 14 to 2147483647"),
        ({"cleanup.policy": "keep"}, "it must be delete, compact, both, or empty"),
        ({"min.cleanable.dirty.ratio": "2"}, "min.cleanable.dirty.ratio is 2.0; it must be from 0 to 1"),
        ({"min.cleanable.dirty.ratio": "half"}, "min.cleanable.dirty.ratio is 'half'; it must be a number"),
        ({"message.timestamp.type": "Never"}, "it must be CreateTime or LogAppendTime"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        LogConfig().override(settings)
