"""The ports of ZooKeeper servers: those that are given, and free ones for the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.coordination.zookeeper.servers import ZooKeeperServers
from barnabas.errors import CoordinationError


def test_servers_have_the_ports_that_are_given(tmp_path: Path) -> None:
    servers = ZooKeeperServers(tmp_path, 3, ports=[1, 2, 3], peer_ports=[11, 12, 13, 14, 15, 16])
    assert servers.address == "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    lines = servers._configuration(1).splitlines()
    assert "clientPort=2" in lines
    assert [line for line in lines if line.startswith("server.")] == [
        "server.1=127.0.0.1:11:12",
        "server.2=127.0.0.1:13:14",
        "server.3=127.0.0.1:15:16",
    ]


@pytest.mark.parametrize("given", [{}, {"ports": [1, 2, 3]}, {"peer_ports": [1, 2, 3, 4, 5, 6]}])
def test_ports_that_are_not_given_are_free_and_all_different(tmp_path: Path, given: dict[str, list[int]]) -> None:
    servers = ZooKeeperServers(tmp_path, 3, **given)
    assert len({*servers.ports, *servers._peer_ports}) == 9


@pytest.mark.parametrize(("count", "given"), [(2, {}), (3, {"ports": [1]}), (3, {"peer_ports": [1, 2, 3]})])
def test_ports_of_some_servers_only_are_refused(tmp_path: Path, count: int, given: dict[str, list[int]]) -> None:
    with pytest.raises(CoordinationError, match="servers with"):
        ZooKeeperServers(tmp_path, count, **given)
