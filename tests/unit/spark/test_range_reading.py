"""The client settings of the reads of a load."""

from __future__ import annotations

import pytest

from barnabas.client.config import AdminConfig, make_config
from barnabas.errors import ConfigurationError
from barnabas.spark.range_reading import RangeConnections, open_admin, settings_of_client

SECURED = {
    "security.protocol": "SASL_SSL",
    "sasl.username": "alice",
    "sasl.password": "${env:PASSWORD}",
    "fetch.max.bytes": "1000",
}


def test_all_clients_get_the_security_settings_also_under_other_clients_names() -> None:
    config = make_config(AdminConfig, settings_of_client("a:1", {**SECURED, "ssl.truststore.location": "/ca.pem"}), {})
    assert (config.bootstrap_servers, config.ssl_cafile, config.sasl_username) == ((("a", 1),), "/ca.pem", "alice")


def test_readers_and_planners_accept_the_names_of_other_clients() -> None:
    settings = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "https", "fetch.wait.max.ms": "5"}
    connections = RangeConnections()
    connections.reader("127.0.0.1:1", settings, ("clicks", 0, 0, 1)).close()
    connections.close()
    open_admin("127.0.0.1:1", settings).close()


def test_unknown_setting_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="sasl_pasword"):
        open_admin("127.0.0.1:1", {**SECURED, "sasl.pasword": "x"})
