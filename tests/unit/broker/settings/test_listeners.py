"""Listeners from settings: names, protocols, the ones for brokers, overrides, and protection by default."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.settings.listeners import (
    ListenerConfig,
    authenticates,
    check_overrides,
    check_protection,
    check_super_users,
    client_auth,
    inter_broker_listener,
    listeners_of,
    parse_endpoints,
    reauthentication_ms,
    sasl_mechanisms,
    tls_settings,
)
from barnabas.broker.settings.loading import load_config
from barnabas.broker.settings.static import BrokerConfig
from barnabas.errors import ConfigurationError
from barnabas.security.protocols import SecurityProtocol
from barnabas.security.tls_settings import ClientAuth

ZOOKEEPER = {"zookeeper.connect": "127.0.0.1:2181"}
SECURED = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,OUTSIDE://broker.example:9093,INTERNAL://10.0.0.1:9094",
    "advertised.listeners": "OUTSIDE://public.example:19093",
    "listener.security.protocol.map": "OUTSIDE:SASL_SSL,INTERNAL:SSL",
    "inter.broker.listener.name": "INTERNAL",
    "listener.name.internal.ssl.client.auth": "required",
    **ZOOKEEPER,
}


def with_settings(settings: dict[str, Any]) -> BrokerConfig:
    return load_config(overrides=settings, environment={})


def listeners(settings: dict[str, Any]) -> dict[str, ListenerConfig]:
    return {each.name: each for each in listeners_of(with_settings(settings))}


def test_short_options_make_one_listener() -> None:
    (only,) = listeners_of(with_settings({"host": "127.0.0.1", "port": 9092}))
    assert (only.name, only.host, only.port, only.flag) == ("PLAINTEXT", "127.0.0.1", 9092, "--port")
    assert (only.protocol, only.serves_brokers) == (SecurityProtocol.PLAINTEXT, False)


def test_broker_of_a_cluster_has_a_listener_for_brokers() -> None:
    found = listeners({"host": "127.0.0.1", "inter.broker.port": 9999, **ZOOKEEPER})
    assert {name: (each.port, each.serves_brokers) for name, each in found.items()} == {
        "PLAINTEXT": (9092, False),
        "REPLICATION": (9999, True),
    }


def test_each_listener_has_its_protocol_and_address() -> None:
    found = listeners(SECURED)
    assert list(found) == ["PLAINTEXT", "OUTSIDE", "INTERNAL"]
    outside = found["OUTSIDE"]
    assert (outside.protocol, outside.advertised_host, outside.advertised_port) == (
        SecurityProtocol.SASL_SSL,
        "public.example",
        19093,
    )
    assert [each.serves_brokers for each in found.values()] == [False, False, True]
    assert inter_broker_listener(with_settings(SECURED)) == "INTERNAL"


def test_one_listener_for_clients_and_brokers_gives_its_protocol_to_replication() -> None:
    """Kafka permits one listener for both."""
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:9093",
        "inter.broker.listener.name": "SASL_SSL",
        "listener.name.sasl_ssl.connections.max.reauth.ms": "5000",
        **ZOOKEEPER,
    }
    found, config = listeners(settings), with_settings(settings)
    assert {name: each.protocol.value for name, each in found.items()} == {
        "SASL_SSL": "SASL_SSL",
        "REPLICATION": "SASL_SSL",
    }
    assert {reauthentication_ms(config, each) for each in found.values()} == {5_000}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("PLAINTEXT", "NAME://HOST:PORT"),
        ("PLAINTEXT://host", "NAME://HOST:PORT"),
        ("PLAINTEXT://host:65536", "NAME://HOST:PORT"),
        ("PLAINTEXT://[::1:9092", "NAME://HOST:PORT"),
        ("PLAINTEXT://[x]:9092", "listeners"),
        ("A://h:1,a://h:2", "contains the listener A twice"),
        (",".join(f"L{number}://h:1" for number in range(33)), "the maximum is 32"),
    ],
)
def test_malformed_endpoint_is_refused(value: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_endpoints("listeners", value)
    assert text in str(caught.value)


def test_endpoints_of_all_forms() -> None:
    found = parse_endpoints("listeners", "plaintext://:9092, SSL://[::1]:9093 ,CONTROLLER://h:1")
    assert [tuple(each) for each in found] == [("PLAINTEXT", "", 9092), ("SSL", "::1", 9093)]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"listeners": "OUTSIDE://h:1"}, "has no security protocol"),
        ({"listener.security.protocol.map": "OUTSIDE:TLS"}, "NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "OUTSIDE"}, "NAME:PROTOCOL"),
        ({"advertised.listeners": "SSL://h:1"}, "which is not in listeners"),
        ({"inter.broker.listener.name": "INTERNAL"}, "is not in listeners"),
        ({"inter.broker.additional.listener.names": "INTERNAL"}, "is not in listeners"),
        (
            {"listeners": "SSL://h:1,SASL_SSL://h:2", "inter.broker.listener.name": "SSL"}
            | {"inter.broker.additional.listener.names": "SASL_SSL", **ZOOKEEPER},
            "no listener serves clients",
        ),
    ],
)
def test_contradictory_listeners_are_refused(settings: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        listeners_of(with_settings(settings))
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("listener.name.elsewhere.ssl.client.auth", "none", "there is no listener ELSEWHERE"),
        ("listener.name.internal.num.partitions", "3", "cannot override num.partitions"),
        ("listener.name.internal.super.users", "User:mallory", "cannot override super.users"),
        ("listener.name.internal", "x", "cannot override"),
        ("listener.name.internal.ssl.client.auth", "sometimes", "listener.name.internal.ssl.client.auth"),
        ("listener.name.internal.connections.max.reauth.ms", "-1", "connections.max.reauth.ms"),
    ],
)
def test_invalid_override_is_refused(name: str, value: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_overrides(with_settings({**SECURED, name: value}))
    assert text in str(caught.value)


def test_override_applies_to_one_listener() -> None:
    settings = {
        **SECURED,
        "ssl.keystore.location": "all.pem",
        "listener.name.internal.ssl.keystore.location": "internal.pem",
        "ssl.key.password": "planted",
    }
    config, found = with_settings(settings), listeners(settings)
    assert {name: client_auth(config, each) for name, each in found.items()} == {
        "PLAINTEXT": ClientAuth.NONE,
        "OUTSIDE": ClientAuth.NONE,
        "INTERNAL": ClientAuth.REQUIRED,
    }
    assert tls_settings(config, found["OUTSIDE"]).key_store == "all.pem"
    assert tls_settings(config, found["INTERNAL"]).key_store == "internal.pem"
    assert "planted" not in repr(tls_settings(config, found["INTERNAL"]))


def test_names_of_overrides_have_no_case() -> None:
    settings = {**SECURED, "listener.name.INTERNAL.ssl.client.auth": "requested"}
    try:
        config = with_settings(settings)
    except ConfigurationError:
        return  # refused, never ignored
    assert client_auth(config, listeners(settings)["INTERNAL"]) is ClientAuth.REQUESTED


LOOPBACK = ("127.0.0.1", "127.1.2.3", "localhost", "::1")
OTHERS = ("", "0.0.0.0", "::", "10.0.0.1", "broker.example", "127.0.0.1.example", "::ffff:10.0.0.1")


@pytest.mark.parametrize("host", LOOPBACK)
def test_listener_on_loopback_needs_no_authentication(host: str) -> None:
    config = with_settings({"host": host})
    assert check_protection(config, listeners_of(config)) == []


@pytest.mark.parametrize("host", OTHERS)
def test_listener_for_other_machines_needs_authentication(host: str) -> None:
    named = f"[{host}]" if ":" in host else host
    for settings in (
        {"listeners": f"PLAINTEXT://{named}:9092"},
        {"listeners": f"SSL://{named}:9092"},
        {"listeners": f"SSL://{named}:9092", "ssl.client.auth": "requested"},
        {
            "listeners": f"PLAINTEXT://127.0.0.1:1,SSL://{named}:9092",
            "listener.name.plaintext.ssl.client.auth": "required",
        },
    ):
        config = with_settings(settings)
        with pytest.raises(ConfigurationError) as caught:
            check_protection(config, listeners_of(config))
        assert "--allow-anonymous" in str(caught.value)
        permitted = with_settings({**settings, "allow.anonymous": "true"})
        assert len(check_protection(permitted, listeners_of(permitted))) == 1
    for settings in (
        {"listeners": f"SASL_SSL://{named}:9092"},
        {"listeners": f"SASL_PLAINTEXT://{named}:9092"},
        {"listeners": f"SSL://{named}:9092", "ssl.client.auth": "required"},
    ):
        config = with_settings(settings)
        assert check_protection(config, listeners_of(config)) == []
        assert all(authenticates(config, each) for each in listeners_of(config))


def test_listener_for_brokers_is_protected_too() -> None:
    config = with_settings({"listeners": "SASL_SSL://0.0.0.0:9092", **ZOOKEEPER})
    with pytest.raises(ConfigurationError, match="REPLICATION"):
        check_protection(config, listeners_of(config))


def test_secured_listener_for_brokers_needs_super_users() -> None:
    secured = {
        "listeners": "SASL_SSL://127.0.0.1:1,BROKERS://127.0.0.1:2",
        "listener.security.protocol.map": "BROKERS:SSL",
        "inter.broker.listener.name": "BROKERS",
    }
    open_to_all = with_settings(secured)
    check_super_users(open_to_all, listeners_of(open_to_all))
    required = secured | {"listener.name.brokers.ssl.client.auth": "required"}
    alone = with_settings(required)
    with pytest.raises(ConfigurationError, match=r"listener BROKERS accepts only .* super\.users is empty"):
        check_super_users(alone, listeners_of(alone))
    complete = with_settings(required | {"super.users": "User:CN=broker-1"})
    check_super_users(complete, listeners_of(complete))


def test_metadata_store_is_protected_too() -> None:
    """Clients of `zookeeper.listener` can read and change the credentials of users."""
    safe = with_settings({"host": "127.0.0.1", "zookeeper.listener": "2181"})
    assert check_protection(safe, listeners_of(safe)) == []
    for settings in (
        {"host": "127.0.0.1", "zookeeper.listener": "0.0.0.0:2181"},
        {"listeners": "SASL_SSL://0.0.0.0:9093", "zookeeper.listener": "127.0.0.1:2181"},
    ):
        config = with_settings(settings)
        with pytest.raises(ConfigurationError, match=r"zookeeper\.listener .* the credentials of users"):
            check_protection(config, listeners_of(config))
        permitted = with_settings({**settings, "allow.anonymous": "true"})
        assert check_protection(permitted, listeners_of(permitted)) != []


def test_plain_needs_tls_unless_permitted() -> None:
    settings = {"listeners": "SASL_PLAINTEXT://h:1,SASL_SSL://h:2", "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"}
    config, found = with_settings(settings), listeners(settings)
    assert sasl_mechanisms(config, found["SASL_SSL"]) == ("PLAIN", "SCRAM-SHA-512")
    with pytest.raises(ConfigurationError, match="passwords without encryption"):
        sasl_mechanisms(config, found["SASL_PLAINTEXT"])
    permitted = with_settings({**settings, "sasl.plain.without.tls.enable": "true"})
    assert "PLAIN" in sasl_mechanisms(permitted, found["SASL_PLAINTEXT"])


@pytest.mark.parametrize("value", ["", "GSSAPI", "SCRAM-SHA-1", "scram-sha-256", "PLAIN,ANONYMOUS"])
def test_other_mechanisms_are_refused(value: str) -> None:
    settings = {"listeners": "SASL_SSL://h:2", "sasl.enabled.mechanisms": value}
    with pytest.raises(ConfigurationError, match=r"sasl\.enabled\.mechanisms"):
        sasl_mechanisms(with_settings(settings), listeners(settings)["SASL_SSL"])


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({}, {"SSL": ClientAuth.REQUIRED, "SASL_SSL": ClientAuth.NONE}),
        (
            {"listener.name.sasl_ssl.ssl.client.auth": "requested", "listener.name.ssl.ssl.client.auth": "none"},
            {"SSL": ClientAuth.NONE, "SASL_SSL": ClientAuth.REQUESTED},
        ),
    ],
)
def test_listener_with_sasl_demands_certificates_only_by_its_own_setting(
    overrides: dict[str, str], expected: dict[str, ClientAuth]
) -> None:
    config = BrokerConfig(
        listeners="SSL://127.0.0.1:9093,SASL_SSL://127.0.0.1:9094",
        ssl_client_auth="required",
        listener_overrides=overrides,
    )
    assert {each.name: client_auth(config, each) for each in listeners_of(config)} == expected
