"""The connection of a command, from its options, a profile and the environment."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from barnabas.cli.connection import Connection
from barnabas.cli.options import connection_options, global_connection_options


@pytest.fixture
def connection(monkeypatch, tmp_path):
    """Runs a command line with an environment, and returns the connection of the command."""
    monkeypatch.delenv("BARNABAS_BOOTSTRAP", raising=False)
    monkeypatch.delenv("BARNABAS_PROFILE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "barnabas" / "profiles"
    folder.mkdir(parents=True)
    (folder / "prod.toml").write_text('bootstrap_servers = "prod:1"\nclient_id = "p"\n')
    (folder / "bare.toml").write_text('client_id = "b"\n')

    def run(*arguments: str, **environment: str) -> Connection:
        found = []

        @click.group()
        @global_connection_options
        def command() -> None:
            pass

        @command.command()
        @connection_options
        def show(connection: Connection) -> None:
            found.append(connection)

        done = CliRunner().invoke(command, list(arguments), env=environment)
        if done.exception is not None:
            raise AssertionError(done.output) from done.exception
        return found[0]

    return run


def test_address_comes_from_the_command_then_the_profile_then_the_environment(connection) -> None:
    assert connection("show").bootstrap == "localhost:9092"
    assert connection("show", BARNABAS_BOOTSTRAP="e:1").bootstrap == "e:1"
    assert connection("show", BARNABAS_BOOTSTRAP="e:1", BARNABAS_PROFILE="prod").bootstrap == "prod:1"
    assert connection("show", "--profile", "bare", BARNABAS_BOOTSTRAP="e:1").bootstrap == "e:1"
    assert connection("--profile", "prod", "show").bootstrap == "prod:1"
    assert connection("-b", "g:1", "--profile", "prod", "show").bootstrap == "g:1"
    assert connection("-b", "g:1", "show", "-b", "h:1").bootstrap == "h:1"
    assert connection("--profile", "bare", "show", "--profile", "prod").bootstrap == "prod:1"


def test_settings_come_from_the_command_then_the_profile(connection) -> None:
    found = connection("-X", "client.id=g", "-X", "acks=1", "show", "--profile", "prod", "-X", "request_timeout_ms=7")
    assert found.properties == {"client.id": "g", "acks": "1", "request.timeout.ms": "7"}
    assert found.settings(compression_type="lz4")["compression.type"] == "lz4"
    assert found.admin_settings == {"bootstrap.servers": "prod:1", "client.id": "g", "request.timeout.ms": "7"}
    assert connection("-X", "client.id=g", "show", "-X", "client.id=h").properties == {"client.id": "h"}


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl_key_password",
        "sasl.jaas.config",
        "sasl.plain.password",
        "zookeeper.auth",
        "zookeeper.ssl.keystore.password",
    ],
)
def test_secret_on_the_command_line_is_refused(connection, name) -> None:
    with pytest.raises(AssertionError, match="list of processes") as refused:
        connection("show", "-X", f"{name}=planted")
    assert "planted" not in str(refused.value)
    assert connection("show", "-X", "sasl.password=${env:PASSWORD}").properties == {"sasl.password": "${env:PASSWORD}"}


def test_settings_are_hidden() -> None:
    assert "planted" not in repr(Connection("a:1", {"sasl.password": "planted"}))
