"""A tree in real ZooKeeper servers keeps the contract of all trees: with one server, and at a follower of three; and so
does a broker's own tree that is served to other processes.

Several servers are asked through one of them: sessions with different servers may read what is older than the other's
last write, as ZooKeeper allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas.coordination.metadata_store import MetadataStore
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.tree_contract import *  # noqa: F403
from tests.support.watch_contract import *  # noqa: F403
from tests.support.xdist_groups import ZOOKEEPER
from tests.support.zookeeper_servers import new_chroot, sessions, start_servers

pytestmark = pytest.mark.xdist_group(ZOOKEEPER)


@pytest.fixture(scope="module", params=[1, 3, 0], ids=["one server", "three servers", "a broker"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("zookeeper")
    if not request.param:
        broker = BrokerProcess(folder / "broker", {"zookeeper_listener": str(free_port())})
        broker.start()
        yield f"127.0.0.1:{broker.settings['zookeeper_listener']}"
        broker.close()
        return
    servers = start_servers(folder, request.param)
    yield servers.address.split(",")[0]
    servers.stop()


@pytest.fixture
def new_session(address: str) -> Iterator[Callable[[], MetadataStore]]:
    """Open another session with the same, at first empty tree."""
    with sessions(address + new_chroot()) as opened:
        yield opened.open


@pytest.fixture
def tree(new_session: Callable[[], MetadataStore]) -> MetadataStore:
    return new_session()
