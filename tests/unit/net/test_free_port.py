"""Ports for servers that are started, and started again, by others."""

from __future__ import annotations

import socket

import pytest

from barnabas.errors import ConfigurationError
from barnabas.net.free_port import HIGHEST, LOWEST, USUAL_EPHEMERAL, lasting_ports

HOST = "127.0.0.1"


@pytest.mark.parametrize(
    ("ephemeral", "wanted"),
    [
        (USUAL_EPHEMERAL, range(LOWEST, USUAL_EPHEMERAL[0])),
        ((1_024, 60_999), range(61_000, HIGHEST + 1)),
        ((12_000, HIGHEST), range(LOWEST, 12_000)),
        ((12_000, 64_000), [*range(LOWEST, 12_000), *range(64_001, HIGHEST + 1)]),
        ((1_024, HIGHEST), range(LOWEST, HIGHEST + 1)),
    ],
)
def test_ports_are_none_that_connections_get_where_there_are_others(ephemeral, wanted) -> None:
    found = lasting_ports(HOST, 9, ephemeral=ephemeral)
    assert len(set(found)) == 9
    assert set(found) <= set(wanted)


def test_machine_is_asked_which_ports_it_gives_to_connections(tmp_path, monkeypatch) -> None:
    told = tmp_path / "range"
    told.write_text("10100\t65535\n")
    monkeypatch.setattr("barnabas.net.free_port.EPHEMERAL_RANGE", told)
    assert set(lasting_ports(HOST, 9)) <= set(range(LOWEST, 10_100))
    told.unlink()
    assert set(lasting_ports(HOST, 9)) <= set(range(LOWEST, USUAL_EPHEMERAL[0]))


def test_port_at_which_somebody_listens_is_not_given(monkeypatch) -> None:
    [taken] = lasting_ports(HOST, 1)
    monkeypatch.setattr("barnabas.net.free_port.LOWEST", taken)
    alone = taken + 1, HIGHEST
    assert lasting_ports(HOST, 1, ephemeral=alone) == [taken]
    with socket.create_server((HOST, taken)):
        assert lasting_ports(HOST, 1, ephemeral=alone) != [taken]


def test_address_of_nobody_has_no_ports(monkeypatch) -> None:
    monkeypatch.setattr("barnabas.net.free_port.LOWEST", HIGHEST - 10)
    with pytest.raises(ConfigurationError, match=r"192\.0\.2\.1 has fewer than 1 free ports"):
        lasting_ports("192.0.2.1", 1)
