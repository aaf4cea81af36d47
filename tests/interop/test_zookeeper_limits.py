"""What ZooKeeper bounds: the size of requests, and who may do what. And how many writes it is sent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.coordination import topic_metadata_store
from barnabas.coordination.metadata_store import OPERATION_BYTES, Create, Delete, NodeExistsError, Set, TooLargeError
from barnabas.coordination.offsets import commit_offsets, delete_group, read_offsets
from barnabas.coordination.zookeeper.answers import NotAllowedError
from barnabas.coordination.zookeeper.operations import REQUEST_BYTES_MAX
from barnabas.coordination.zookeeper.servers import ZooKeeperServers
from barnabas.model import OffsetAndMetadata, TopicPartition
from tests.support.xdist_groups import ZOOKEEPER
from tests.support.zookeeper_servers import Sessions, new_chroot, sessions, start_servers

pytestmark = pytest.mark.xdist_group(ZOOKEEPER)

COUNT = 3_000
"""Partitions, of which ZooKeeper takes less than half at once."""
OURS = {"auth": "barnabas:secret", "set_acl": True}


@pytest.fixture(scope="module", params=[1, 3], ids=["one server", "three servers"])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServers]:
    servers = start_servers(tmp_path_factory.mktemp("zookeeper"), request.param)
    yield servers
    servers.stop()


@pytest.fixture
def opened(servers: ZooKeeperServers) -> Iterator[Sessions]:
    with sessions(servers.address.split(",")[-1] + new_chroot()) as opened:
        yield opened


def test_largest_node_is_kept_and_one_byte_more_is_refused(opened):
    tree = opened.open(**OURS)
    data = b"x" * (REQUEST_BYTES_MAX - OPERATION_BYTES - len("/a"))
    tree.create("/a", data)
    tree.set("/a", data)
    assert tree.get("/a").data == data
    with pytest.raises(TooLargeError, match=r"/a: too large: the request of 1 operations exceeds ZooKeeper's limit"):
        tree.set("/a", data + b"x")
    assert tree.get("/a").stat.version == 1


def test_largest_multi_is_done_and_one_operation_more_is_refused(opened):
    tree = opened.open(**OURS)
    paths = [f"/{number:05d}" for number in range(REQUEST_BYTES_MAX // (OPERATION_BYTES + 6))]
    tree.multi([Create(path) for path in paths])
    tree.multi([Set(path, b"") for path in paths])
    tree.multi([Delete(path) for path in paths])
    with pytest.raises(TooLargeError):
        tree.multi([Create(path) for path in [*paths, "/more"]])
    assert tree.children("/") == []
    tree.multi([])


def test_topic_of_thousands_of_partitions_is_made_grown_read_and_deleted(opened):
    tree = opened.open(**OURS)
    topic_metadata_store.prepare(tree, "cluster-1")
    name = "t" * 249
    created = topic_metadata_store.create_topic(tree, name, bytes(range(16)), [[1, 2, 3]] * COUNT, {"a": "b"})
    assert topic_metadata_store.read_topics(tree) == {name: created}
    assert topic_metadata_store.grow_topic(tree, name, [[3, 2, 1]] * 600, COUNT) == COUNT + 600
    assert len(topic_metadata_store.read_topic(tree, name).partitions) == COUNT + 600
    offsets = {TopicPartition(name, number): OffsetAndMetadata(number) for number in range(COUNT + 600)}
    assert commit_offsets(tree, "group", offsets, 1) == set()
    assert read_offsets(tree, "group") == offsets
    assert delete_group(tree, "group")
    assert topic_metadata_store.delete_topic(tree, name)
    assert tree.children("/brokers/topics") == tree.children("/config/topics") == tree.children("/consumers") == []


def test_nodes_may_be_read_by_all_and_changed_by_whoever_has_the_password(opened):
    ours, again = opened.open(**OURS), opened.open(**OURS)
    nobody, somebody = opened.open(), opened.open(auth="somebody:else")
    ours.create("/a/b", b"1", make_parents=True)
    ours.create("/a/mine", ephemeral=True)
    for stranger in (nobody, somebody):
        assert stranger.get("/a/b").data == b"1"
        assert stranger.children("/a") == ["b", "mine"]
        assert set(stranger.subtree("/")) == {"/a", "/a/b", "/a/mine"}
        for write in (
            lambda tree: tree.set("/a/b", b"2"),
            lambda tree: tree.delete("/a/b"),
            lambda tree: tree.create("/a/c"),
            lambda tree: tree.create("/c"),
            lambda tree: tree.multi([Delete("/a/mine")]),
        ):
            with pytest.raises(NotAllowedError, match=r"does not permit .*check zookeeper\.auth"):
                write(stranger)
    again.set("/a/b", b"2")
    again.delete("/a/b")


def test_chroot_that_must_not_be_made_is_named(opened):
    opened.open(**OURS)
    with pytest.raises(NotAllowedError, match="/below: ZooKeeper does not permit"):
        opened.open(connect=opened.connect + "/below")


def test_password_is_told_anew_on_each_connection(opened, servers):
    ours = opened.open(**OURS)
    ours.create("/a")
    ours._session._client._connection._socket.shutdown(2)
    ours.set("/a", b"1")
    ours.create("/b")
    with pytest.raises(NotAllowedError):
        opened.open().delete("/b")


def test_only_writes_are_counted(opened):
    tree = opened.open()
    assert tree.writes == 0
    tree.create("/a")
    tree.set("/a", b"1")
    with pytest.raises(NodeExistsError):
        tree.create("/a")
    assert tree.writes == 3
    tree.get("/a", lambda _event: None)
    tree.children("/")
    tree.subtree("/")
    tree.ping(60)
    tree.flush()
    tree.multi([])
    assert tree.writes == 3


def test_chroots_are_apart(opened):
    tree = opened.open(connect=opened.connect + "/one/deep")
    tree.create("/a", b"1")
    assert opened.open().get("/one/deep/a").data == b"1"
    assert opened.open(connect=opened.connect + "/one/other").children("/") == []
