"""A listener for brokers that authenticates: it accepts only the principals of super.users."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas.client.config import AdminConfig, make_config
from barnabas.client.security import connection_security
from barnabas.errors import AuthenticationError, BarnabasError
from barnabas.net.client_connection import dial
from tests.support.secured_broker import LISTENERS, PASSWORD, USER, SecuredBroker, secured_broker

SUPER_USERS = f"User:{USER};User:peer"


def settings_of(protocol: str) -> dict[str, str]:
    return {
        "listeners": ",".join(f"{each}://127.0.0.1:0" for each in (*LISTENERS, "BROKERS")),
        "listener.security.protocol.map": f"BROKERS:{protocol}",
        "inter.broker.listener.name": "BROKERS",
        "sasl.inter.broker.username": USER,
        "sasl.inter.broker.password": PASSWORD,
        "listener.name.brokers.ssl.client.auth": "required",
        "super.users": SUPER_USERS,
        "connection.failed.authentication.delay.ms": "1",
    }


def connect(broker: SecuredBroker, **settings: Any) -> None:
    """Connect to the listener for brokers, and get the response to the first request."""
    given = {"ssl_cafile": str(broker.certificates.ca), **settings}
    config = make_config(AdminConfig, broker.address("BROKERS"), given)

    async def attempt() -> None:
        (host, port), *_ = config.bootstrap_servers
        connection = await dial(host, port, security=connection_security(config))
        connection.close()

    asyncio.run(attempt())


def test_certificate_of_a_client_does_not_open_the_listener_for_brokers(tmp_path: Path) -> None:
    settings = settings_of("SSL")
    with secured_broker(tmp_path, **settings) as broker:
        connect(broker, security_protocol="SSL", ssl_certfile=str(broker.certificates.client("peer")))
        with pytest.raises(BarnabasError):
            connect(broker, security_protocol="SSL", ssl_certfile=str(broker.certificates.client("mallory")))
        assert "User:mallory is not in super.users, and cannot act as a broker" in broker.logs.text()


def test_password_of_a_client_does_not_open_the_listener_for_brokers(tmp_path: Path) -> None:
    settings = settings_of("SASL_SSL")
    del settings["listener.name.brokers.ssl.client.auth"]
    with secured_broker(tmp_path, **settings) as broker:
        with barnabas.Admin(**broker.client()) as admin:
            admin.set_user_password("mallory", "pa55")
        of_user = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-256"}
        connect(broker, **of_user, sasl_username=USER, sasl_password=PASSWORD)
        with pytest.raises(AuthenticationError):
            connect(broker, **of_user, sasl_username="mallory", sasl_password="pa55")
        assert "User:mallory is not in super.users, and cannot act as a broker" in broker.logs.text()
