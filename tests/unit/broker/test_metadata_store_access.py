"""The settings for the security of ZooKeeper, before a session begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.metadata_store_access import open_metadata_store
from barnabas.broker.settings.static import BrokerConfig
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ConfigurationError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"zookeeper_ssl_truststore_location": "ca.pem"}, r"zookeeper\.ssl\.client\.enable is false"),
        ({"zookeeper_ssl_keystore_location": "key.pem"}, r"zookeeper\.ssl\.client\.enable is false"),
        ({"zookeeper_set_acl": "true"}, r"zookeeper\.set\.acl requires zookeeper\.auth or a client certificate"),
        (
            {"zookeeper_ssl_client_enable": True, "zookeeper_ssl_truststore_location": "missing.pem"},
            r"cannot read missing\.pem",
        ),
        ({"zookeeper_auth": "${env:NOT_SET_ANYWHERE}"}, r"zookeeper\.auth: "),
    ],
)
def test_settings_that_would_leave_zookeeper_unprotected_are_refused(
    settings: dict[str, object], message: str, tmp_path: Path
) -> None:
    config = BrokerConfig(zookeeper_connect="127.0.0.1:1", **settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=message):
        open_metadata_store(config, tmp_path / "metadata", SYSTEM_CLOCK)


@pytest.mark.parametrize("name", ["zookeeper_ssl_truststore_location", "zookeeper_ssl_keystore_location"])
def test_standalone_broker_refuses_settings_without_effect(name: str, tmp_path: Path) -> None:
    config = BrokerConfig(**{name: "some.pem"})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"is set, but zookeeper\.ssl\.client\.enable is false"):
        open_metadata_store(config, tmp_path / "metadata", SYSTEM_CLOCK)
