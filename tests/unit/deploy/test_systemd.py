"""The units and settings in deploy/systemd say what the command and the settings know, and systemd understands them."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from barnabas.broker.settings.listeners import check_protection, listeners_of
from barnabas.broker.settings.loading import load_config
from barnabas.broker.settings.static import BrokerConfig
from barnabas.cli.up import up
from barnabas.exit_codes import EXIT_WRONG_SETTINGS

FOLDER = Path(__file__).resolve().parents[3] / "deploy" / "systemd"
UNIT = "barnabas@.service"
UNITS = "barnabas.service", UNIT


def unit(name: str = UNIT) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign] - systemd's names have capital letters
    parser.read(FOLDER / name)
    return parser


def environment() -> dict[str, str]:
    lines = (FOLDER / "broker.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def config(broker: int, data: str) -> BrokerConfig:
    flags = {"broker_id": broker, "data": data}
    return load_config(str(FOLDER / "broker.toml"), flags, environment())


@pytest.mark.parametrize(("name", "broker", "data"), [(UNITS[0], None, ""), (UNIT, 2, "/2")])
def test_unit_gives_the_command_options_that_it_has(name: str, broker: int | None, data: str) -> None:
    service = unit(name)["Service"]
    program, command, *arguments = shlex.split(service["ExecStart"].replace("%i", "2"))
    assert (program, command) == ("/opt/barnabas/bin/barnabas", "up")
    given = up.make_context("up", list(arguments)).params
    assert {name: given[name] for name in ("broker_id", "data", "config", "log_format")} == {
        "broker_id": broker,
        "data": (f"/var/lib/barnabas{data}",),
        "config": "/etc/barnabas/broker.toml",
        "log_format": "json",
    }
    assert f"barnabas{data}" in service["StateDirectory"].replace("%i", "2").split()


def test_units_differ_by_the_broker_only() -> None:
    one, many = (dict(unit(name)["Service"]) for name in UNITS)
    assert {name for name in one if one[name] != many[name]} == {"ExecStart", "StateDirectory"}
    assert one.keys() == many.keys()
    assert int(one["RestartPreventExitStatus"]) == EXIT_WRONG_SETTINGS


def test_unit_waits_for_longer_than_a_broker_takes_to_hand_over() -> None:
    timeout_s = int(unit()["Service"]["TimeoutStopSec"])
    assert timeout_s * 1000 > 10 * config(1, "data").controlled_shutdown_timeout_ms


def test_settings_are_those_of_a_broker_that_has_its_place_in_the_cluster() -> None:
    found = config(2, "data")
    assert (found.broker_id, found.host, found.port, found.rack) == (2, "10.0.0.1", 9092, "east")
    assert found.inter_broker_port == 9093
    assert check_protection(found, listeners_of(found)) != []  # permitted by allow.anonymous
    servers, _, path = found.zookeeper_connect.partition("/")
    assert path == "barnabas"
    zoo = (FOLDER / "zoo.cfg").read_text()
    members = re.findall(r"^server\.\d=([\d.]+):", zoo, re.MULTILINE)
    port = re.findall(r"^clientPort=(\d+)$", zoo, re.MULTILINE)[0]
    assert servers.split(",") == [f"{member}:{port}" for member in members]


def test_settings_of_one_broker_are_for_its_machine_only() -> None:
    found = load_config(str(FOLDER / "one-broker.toml"), {}, {})
    assert all(each.is_loopback for each in listeners_of(found))
    assert found.zookeeper_connect == ""


def test_zookeeper_grants_the_session_that_brokers_ask_for() -> None:
    zoo = dict(re.findall(r"^([\w.]+)=(\d+)$", (FOLDER / "zoo.cfg").read_text(), re.MULTILINE))
    tick_ms, wanted_ms = int(zoo["tickTime"]), config(1, "data").zookeeper_session_timeout_ms
    assert 2 * tick_ms <= wanted_ms <= 20 * tick_ms
    assert int(zoo["autopurge.purgeInterval"]) > 0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
@pytest.mark.parametrize("file", UNITS)
def test_systemd_understands_the_unit(tmp_path: Path, file: str) -> None:
    name = tmp_path / file.replace("@", "@1")
    # What has to be there on the machine is not there on this one.
    name.write_text((FOLDER / file).read_text().replace("/opt/barnabas/bin/barnabas", "/bin/true"))
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(name)]
    verified = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    told = [line for line in verified.stderr.splitlines() if "barnabas" in line]
    assert (verified.returncode, told) == (0, []), verified.stderr
