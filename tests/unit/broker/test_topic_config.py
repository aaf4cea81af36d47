"""What a topic may be called, and what it may ask for."""

from __future__ import annotations

import pytest

from barnabas.broker.config import BrokerConfig
from barnabas.broker.topic_config import check_topic_name, topic_config
from barnabas.errors import ErrorCode, KafkaError
from barnabas.model import TimestampType


@pytest.mark.parametrize("name", ["clicks", "a", "x" * 249, "web.access-log_2015", "..."])
def test_good_names(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "café", "a\n", "../etc"])
def test_bad_names(name: str) -> None:
    with pytest.raises(KafkaError) as caught:
        check_topic_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


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
        ("cleanup.policy", "compact"),
        ("compression.type", "brotli"),
        ("min.insync.replicas", "0"),
    ],
)
def test_wrong_settings_are_refused(name: str, value: str) -> None:
    with pytest.raises(KafkaError) as caught:
        topic_config(BrokerConfig(), {name: value})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
