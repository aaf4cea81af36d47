"""The command lines of several brokers on one machine."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import click
import pytest

from barnabas.broker.settings.loading import load_config
from barnabas.broker.settings.static import BrokerConfig
from barnabas.cli import brokers_here, up
from barnabas.cli.brokers_here import check_ports, given_arguments
from barnabas.cli.main import main
from barnabas.errors import ConfigurationError

ZOOKEEPER = {"zookeeper_connect": "127.0.0.1:2181"}


def settings_of(config: BrokerConfig, number: int, http: str | None = None) -> dict[str, str]:
    """Return the settings of a broker, by Kafka's name; the address of its status pages is `--http`."""
    parts = brokers_here._overrides(config, http, number)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return {option: value for option, value in pairs if option != "-X"} | dict(
        value.split("=", 1) for option, value in zip(parts[::2], parts[1::2], strict=True) if option == "-X"
    )


def test_brokers_have_consecutive_ids_and_ports_and_folders_of_their_own() -> None:
    config = BrokerConfig(broker_id=5, port=9092, inter_broker_port=9192, log_dirs="/a,/b", **ZOOKEEPER)
    assert settings_of(config, 2, "0.0.0.0:8080") == {
        "broker.id": "7",
        "log.dirs": "/a/broker-7,/b/broker-7",
        "machine": platform.node(),
        "host": "127.0.0.1",
        "port": "9094",
        "inter.broker.port": "9194",
        "--http": "0.0.0.0:8082",
    }


def test_listeners_and_what_they_advertise_move_together() -> None:
    config = BrokerConfig(
        listeners="PLAINTEXT://127.0.0.1:9092,SSL://[::1]:0",
        advertised_listeners="PLAINTEXT://example.org:19092",
        machine="rack-3-slot-4",
        **ZOOKEEPER,
    )
    found = settings_of(config, 1)
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9093,SSL://[::1]:0"
    assert found["advertised.listeners"] == "PLAINTEXT://example.org:19093"
    assert found["machine"] == "rack-3-slot-4"
    assert "port" not in found


@pytest.mark.parametrize(
    ("settings", "http", "message"),
    [
        ({"listeners": "A://:9092,B://:9093"}, None, "port 9093 twice"),
        ({"port": 9092, "inter_broker_port": 9093}, None, "port 9093 twice"),
        ({"port": 9092}, "9094", "port 9094 twice"),
        ({"port": 65_534}, None, "ports up to 65536"),
    ],
)
def test_ports_that_would_be_used_twice_are_refused(settings: dict[str, Any], http: str | None, message: str) -> None:
    config = BrokerConfig(listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT", **settings, **ZOOKEEPER)
    with pytest.raises(ConfigurationError, match=message):
        check_ports(config, http, 3)


def test_ports_with_room_between_them_are_taken() -> None:
    check_ports(BrokerConfig(port=9092, inter_broker_port=0), "9095", 3)
    check_ports(BrokerConfig(port=0), None, 64)


def test_all_brokers_get_the_arguments_that_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("num.partitions = 6\n")
    given = ["--config", str(file), "-X", "log.retention.hours=3", "-X", "num.io.threads=2", "--rack", "east"]
    own = ["--id", "4", "--port", "9000", "--data", "here", "--http", "9500", "--host", "127.0.0.1"]
    found: list[str] = []

    def run(context: click.Context, config: BrokerConfig, count: int, _log_format: str) -> int:
        assert (config.broker_id, config.num_partitions, count) == (4, 6, 3)
        found.extend(given_arguments(context))
        return 0

    monkeypatch.setattr(brokers_here, "run_brokers", run)
    assert main(["up", *given, *own, "--brokers-here", "3", "--zookeeper", "127.0.0.1:2181"]) == 0
    options = dict.fromkeys(found[::2])
    assert options.keys() == {"--config", "-X", "--rack", "--zookeeper"}
    assert found.count("-X") == 2
    parsed = up.up.make_context("up", list(found)).params
    assert parsed["properties"] == {"log.retention.hours": "3", "num.io.threads": "2"}
    assert (parsed["config"], parsed["rack"], parsed["brokers_here"]) == (str(file), "east", 1)


def test_without_zookeeper_the_hint_names_what_helps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--brokers-here", "2"]) == 2
    assert "--brokers-here needs --zookeeper" in capsys.readouterr().err


def test_settings_of_a_broker_are_valid_settings(tmp_path: Path) -> None:
    config = BrokerConfig(broker_id=1, port=9092, data=str(tmp_path), **ZOOKEEPER)
    found = {name: value for name, value in settings_of(config, 1).items() if not name.startswith("--")}
    second = load_config(None, {**ZOOKEEPER, **found}, {})
    assert (second.broker_id, second.port, second.folders) == (2, 9093, (tmp_path / "broker-2",))
