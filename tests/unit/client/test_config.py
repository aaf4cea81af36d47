"""Settings: names in both spellings, types, bounds, and errors that say what would be right."""

from __future__ import annotations

import pytest

from barnabas.client.config import AdminConfig, ConsumerConfig, ProducerConfig, make_config, parse_addresses
from barnabas.errors import ConfigurationError


def test_keyword_arguments_win_over_the_dict():
    config = make_config(ProducerConfig, {"bootstrap.servers": "a:1", "linger.ms": 5}, {"linger_ms": 7})
    assert config.bootstrap_servers == (("a", 1),)
    assert config.linger_ms == 7


def test_values_may_be_strings_as_in_a_properties_file():
    config = make_config(
        ConsumerConfig,
        {"enable.auto.commit": "false", "max.poll.records": "10", "group.id": "g", "auto.offset.reset": "smallest"},
        {},
    )
    assert config.enable_auto_commit is False
    assert config.max_poll_records == 10
    assert config.group == "g"
    assert config.auto_offset_reset == "earliest"


@pytest.mark.parametrize(("given", "acks"), [("all", -1), (-1, -1), ("-1", -1), (0, 0), ("1", 1), (1, 1)])
def test_acks_has_several_spellings(given, acks):
    assert make_config(ProducerConfig, None, {"acks": given}).acks == acks


def test_weaker_acks_switch_idempotence_off_unless_it_was_asked_for():
    assert make_config(ProducerConfig, None, {}).enable_idempotence
    assert not make_config(ProducerConfig, None, {"acks": 1}).enable_idempotence
    with pytest.raises(ConfigurationError, match="enable_idempotence needs acks='all'"):
        make_config(ProducerConfig, None, {"acks": 1, "enable_idempotence": True})


def test_idempotence_allows_no_more_than_five_requests_in_flight():
    with pytest.raises(ConfigurationError, match="at most 5"):
        make_config(ProducerConfig, {"max.in.flight.requests.per.connection": 6}, {})
    assert make_config(ProducerConfig, None, {"max_in_flight": 50, "acks": 1})


@pytest.mark.parametrize(
    ("cls", "settings", "message"),
    [
        (ProducerConfig, {"linger": 1}, "did you mean 'linger_ms'"),
        (ProducerConfig, {"compresion.type": "lz4"}, "did you mean 'compression.type'"),
        (ProducerConfig, {"compression_type": "brotli"}, "none, gzip, snappy, lz4, zstd"),
        (ProducerConfig, {"acks": 2}, "all"),
        (ProducerConfig, {"acks": True}, "all"),
        (ProducerConfig, {"batch_size": "big"}, "whole number"),
        (ProducerConfig, {"batch_size": 1.5}, "whole number"),
        (ProducerConfig, {"linger_ms": -1}, "between 0"),
        (ProducerConfig, {"partitioner": "random"}, "function"),
        (ConsumerConfig, {"enable_auto_commit": "yes"}, "true or false"),
        (ConsumerConfig, {"group": ""}, "non-empty"),
        (ConsumerConfig, {"heartbeat_interval_ms": 45_000}, "less than session_timeout_ms"),
        (ConsumerConfig, {"partition_assignment_strategy": "uniform"}, "range, roundrobin, sticky"),
        (AdminConfig, {"xyzzy": 1}, "known are"),
        (AdminConfig, {"acks": 1}, "'acks' is a setting of Producer, not of Admin"),
        (ConsumerConfig, {"linger.ms": 1}, "'linger.ms' is a setting of Producer, not of Consumer"),
        (ProducerConfig, {"message.max.bytes": 1}, "known are"),
        (ProducerConfig, {"queue.buffering.max.messages": 1}, "known are"),
        (ProducerConfig, {"sasl.kerberos.service.name": "kafka"}, "'sasl.kerberos.service.name' is not supported yet"),
        (ProducerConfig, {"ssl_cafile": "ca.pem"}, "ssl_cafile needs security_protocol SSL or SASL_SSL, not PLAINTEXT"),
        (ProducerConfig, {"transactional.id": "t"}, "'transactional.id' is not supported yet"),
        (ConsumerConfig, {"zookeeper.ssl.cafile": "ca.pem"}, "zookeeper_ssl_cafile needs zookeeper_ssl_client_enable"),
        (ConsumerConfig, {"zookeeper.set.acl": "true"}, "needs zookeeper_auth or zookeeper_ssl_certfile"),
        (ConsumerConfig, {"security.protocol": "SASL_SSL"}, "SCRAM-SHA-512 needs sasl_username and sasl_password"),
        (ConsumerConfig, {"group.protocol": "consumer"}, "it must be classic"),
        (ProducerConfig, {"client.rack": "a"}, "it must be nothing"),
        (
            ProducerConfig,
            {"value.serializer": "org.apache.kafka.S"},
            "value_serializer to the client as a keyword argument",
        ),
    ],
)
def test_what_cannot_be_is_an_error_that_says_what_can(cls, settings, message):
    with pytest.raises(ConfigurationError, match=message):
        make_config(cls, None, settings)


@pytest.mark.parametrize("cls", [ProducerConfig, ConsumerConfig, AdminConfig])
def test_settings_of_other_clients_that_change_nothing_are_taken(cls):
    settings = {
        "security.protocol": "PLAINTEXT",
        "isolation.level": "read_committed",
        "client.dns.lookup": "use_all_dns_ips",
        "api.version.request": True,
        "connections.max.idle.ms": 1000,
        "receive.buffer.bytes": 65536,
        "group.protocol": "classic",
        "interceptor.classes": "",
        "client.rack": None,
    }
    assert make_config(cls, settings, {}) == make_config(cls, None, {"security_protocol": "PLAINTEXT"})


def test_addresses():
    assert parse_addresses("a, b:9093") == (("a", 9092), ("b", 9093))
    assert parse_addresses(["[::1]:1", "[::1]"]) == (("::1", 1), ("::1", 9092))
    assert parse_addresses("::1:9092") == (("::1", 9092),)
    for wrong in ("", ":9092", "a:b", "a:0", "a:70000", 9092, "::1", "[::1", "[a]:9092", "a:1:9092", "a b", "[::1]:"):
        with pytest.raises(ConfigurationError):
            parse_addresses(wrong)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group": "g", "coordination": "localhost:2181"}, "zookeeper://host:port"),
        ({"group": "g", "coordination": "zookeeper://"}, "zookeeper://host:port"),
        ({"coordination": "zookeeper://localhost"}, "needs a group"),
        ({"group": "g", "coordination": "zookeeper://localhost", "group_instance_id": "a"}, "remove it"),
        ({"group": "g", "offsets_storage": "disk"}, "must be one of zookeeper, kafka"),
    ],
)
def test_coordination_that_cannot_be_is_refused(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        make_config(ConsumerConfig, None, settings)
