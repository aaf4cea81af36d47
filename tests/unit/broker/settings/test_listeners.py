"""The listeners of a broker, from its settings."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.listeners import client_auth, listeners_of
from barnabas.broker.settings.static import BrokerConfig
from barnabas.security.tls_settings import ClientAuth

LISTENERS = "SSL://127.0.0.1:9093,SASL_SSL://127.0.0.1:9094"


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
def test_listener_with_sasl_demands_certificates_only_by_its_own_setting(overrides, expected) -> None:
    config = BrokerConfig(listeners=LISTENERS, ssl_client_auth="required", listener_overrides=overrides)
    assert {each.name: client_auth(config, each) for each in listeners_of(config)} == expected
