"""A tree in real ZooKeeper servers keeps the contract of all trees: with one server, and at a follower of three.

Several servers are asked through one of them: sessions with different servers may read what is older than the other's
last write, as ZooKeeper allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas.coordination.tree import Tree
from barnabas.coordination.zookeeper.servers import ZooKeeperServers
from tests.interop.zookeeper import GROUP, new_chroot, sessions, start_servers
from tests.unit.coordination.tree_contract import *  # noqa: F403
from tests.unit.coordination.watch_contract import *  # noqa: F403

pytestmark = pytest.mark.xdist_group(GROUP)


@pytest.fixture(scope="module", params=[1, 3], ids=["one server", "three servers"])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServers]:
    servers = start_servers(tmp_path_factory.mktemp("zookeeper"), request.param)
    yield servers
    servers.stop()


@pytest.fixture
def new_session(servers: ZooKeeperServers) -> Iterator[Callable[[], Tree]]:
    """Open another session with the same, at first empty tree."""
    address = servers.address.split(",")[0]
    with sessions(address + new_chroot()) as opened:
        yield opened.open


@pytest.fixture
def tree(new_session: Callable[[], Tree]) -> Tree:
    return new_session()
