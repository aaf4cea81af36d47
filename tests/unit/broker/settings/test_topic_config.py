"""What the settings of a topic may be, and what they come to."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import is_unclean_election_allowed, topic_config
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TimestampType


def test_a_topics_settings_win_over_the_brokers() -> None:
    broker = BrokerConfig(message_max_bytes=500, log_segment_bytes=10_000)
    config = topic_config(broker, {"max.message.bytes": "2000", "message.timestamp.type": "LogAppendTime"})
    assert (config.log.max_message_bytes, config.log.segment_bytes) == (2000, 10_000)
    assert config.log.message_timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize("of_broker", [False, True])
@pytest.mark.parametrize("own", ["true", "TRUE", "false", None])
def test_unclean_election_is_allowed_as_the_topics_whole_configuration_says(of_broker: bool, own: str | None) -> None:
    config = BrokerConfig(unclean_leader_election_enable=of_broker)
    settings = {"unclean.leader.election.enable": own}
    is_allowed = is_unclean_election_allowed(config, settings)
    assert is_allowed == topic_config(config, settings).unclean_leader_election_enable
    assert is_allowed == (of_broker if own is None else own.lower() == "true")


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
    with pytest.raises(ApiError) as caught:
        topic_config(BrokerConfig(), {name: value})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
