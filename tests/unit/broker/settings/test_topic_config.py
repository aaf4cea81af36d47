"""What the settings of a topic may be, and what they come to."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import topic_config
from barnabas.errors import ErrorCode, KafkaError
from barnabas.model import TimestampType


def test_a_topics_settings_win_over_the_brokers() -> None:
    broker = BrokerConfig(message_max_bytes=500, log_segment_bytes=10_000)
    config = topic_config(broker, {"max.message.bytes": "2000", "message.timestamp.type": "LogAppendTime"})
    assert (config.log.max_message_bytes, config.log.segment_bytes) == (2000, 10_000)
    assert config.log.message_timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.byte", "1"),
        ("segment.bytes", "many"),
        ("cleanup.policy", "keep"),
        ("compression.type", "brotli"),
        ("min.insync.replicas", "0"),
    ],
)
def test_wrong_settings_are_refused(name: str, value: str) -> None:
    with pytest.raises(KafkaError) as caught:
        topic_config(BrokerConfig(), {name: value})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
