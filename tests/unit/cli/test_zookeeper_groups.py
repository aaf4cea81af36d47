"""`barnabas group ... --zookeeper`: groups that coordinate among themselves, in an embedded tree here."""

from __future__ import annotations

import json

import pytest

from barnabas.cli import zookeeper_groups
from barnabas.client.admin.groups import MemberDescription
from barnabas.coordination import topic_metadata_store
from barnabas.coordination.consumers import ConsumerRegistry
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import MetadataStoreUnavailableError
from barnabas.coordination.offsets import commit_offsets, read_offsets
from barnabas.model import OffsetAndMetadata, TopicPartition

BOTH = [TopicPartition("clicks", 0), TopicPartition("clicks", 1)]
ZOOKEEPER = ("--zookeeper", "z:2181/barnabas")


@pytest.fixture
def tree(tmp_path, cluster, monkeypatch):
    """Where the group `ctr` is at offset 1 in both partitions of `clicks`, which end with 3 and 1."""
    tree = EmbeddedMetadataStore(tmp_path / "tree.db")
    topic_metadata_store.create_topic(tree, "clicks", bytes(16), [[1], [1]])
    commit_offsets(tree, "ctr", dict.fromkeys(BOTH, OffsetAndMetadata(1)), 7)
    cluster.create("clicks", 2)
    for partition in (0, 0, 0, 1):
        cluster.append("clicks", b"x", partition=partition)
    cluster.members["ctr-of-brokers"] = [MemberDescription("m", "m", "h", None, (), ())]
    monkeypatch.setattr(zookeeper_groups, "_open", lambda _connect, _connection: tree.new_session())
    yield tree
    tree.close()


@pytest.fixture
def reader(tree):
    """A consumer of the group that owns partition 1."""
    session = tree.new_session()
    consumer = ConsumerRegistry(session, "ctr", "reader-1", lambda: None)
    consumer.register(["clicks"], 7)
    consumer.claim([BOTH[1]])
    yield consumer
    session.close()


def test_list_shows_those_in_zookeeper_alone(tree, run):
    assert run("group", "list", *ZOOKEEPER).out.splitlines() == [
        "group  state  type       protocol",
        "ctr    Empty  zookeeper  consumer",
    ]
    assert json.loads(run("group", "list", "--state", "stable", "--json", *ZOOKEEPER).out) == []
    assert json.loads(run("group", "list", "--type", "classic", "--json", *ZOOKEEPER).out) == []


def test_describe_shows_who_owns_what_and_the_lag(tree, reader, run):
    assert run("group", "describe", "ctr", *ZOOKEEPER).out.splitlines() == [
        "group ctr: Stable, 1 member, assigned by range, coordination zookeeper",
        "",
        "member    host  partitions",
        "reader-1  -     clicks:1",
        "",
        "topic   partition  committed  end  lag  member",
        "clicks          0          1    3    2  -",
        "clicks          1          1    1    0  reader-1",
        "total           -          -    -    2  -",
    ]
    described = json.loads(run("group", "describe", "ctr", "--json", *ZOOKEEPER).out)
    assert (described["coordination"], described["coordinator"], described["lag"]) == ("zookeeper", None, 2)
    assert run("group", "describe", "ctr", "--state", *ZOOKEEPER).out.splitlines()[1].endswith("range     zookeeper")


def test_describe_says_that_there_is_no_such_group(tree, run):
    assert "no group 'crt'; did you mean 'ctr'?" in run("group", "describe", "crt", *ZOOKEEPER).err


def test_reset_moves_offsets_in_zookeeper(tree, cluster, run):
    run("group", "reset", "ctr", "--all-topics", "--to-earliest", "--execute", *ZOOKEEPER)
    assert read_offsets(tree, "ctr") == dict.fromkeys(BOTH, OffsetAndMetadata(0))
    assert "ctr" not in cluster.committed


def test_reset_is_refused_while_the_group_has_consumers(tree, reader, run):
    failed = run("group", "reset", "ctr", "--all-topics", "--to-earliest", "--execute", *ZOOKEEPER)
    assert "group 'ctr' has 1 member (reader-1); stop them first" in failed.err
    assert read_offsets(tree, "ctr") == dict.fromkeys(BOTH, OffsetAndMetadata(1))


def test_offsets_that_the_group_keeps_with_the_brokers_are_shown_and_moved_there(tree, cluster, run):
    ConsumerRegistry(tree, "other", "c", lambda: None).register(["clicks"], 7)
    tree.delete("/consumers/other/ids/c")
    cluster.committed["other"] = {BOTH[0]: OffsetAndMetadata(2)}
    assert json.loads(run("group", "describe", "other", "--json", *ZOOKEEPER).out)["lag"] == 1
    run("group", "reset", "other", "--all-topics", "--to-earliest", "--execute", *ZOOKEEPER)
    assert cluster.committed["other"] == {BOTH[0]: OffsetAndMetadata(0)}
    run("group", "delete", "other", "-y", *ZOOKEEPER)
    assert "other" not in cluster.committed
    assert tree.exists("/consumers/other") is None


def test_delete_forgets_groups_without_consumers(tree, reader, run):
    assert "has members; stop them first" in run("group", "delete", "ctr", "-y", *ZOOKEEPER).err
    reader.leave([BOTH[1]])
    run("group", "delete", "--all-groups", "-y", *ZOOKEEPER)
    assert tree.exists("/consumers/ctr") is None


def test_delete_offsets_forgets_those_that_are_named(tree, run):
    run("group", "delete-offsets", "ctr", "-t", "clicks:0", "-y", *ZOOKEEPER)
    assert read_offsets(tree, "ctr") == {BOTH[1]: OffsetAndMetadata(1)}


def test_address_without_a_cluster_is_told(tmp_path, cluster, monkeypatch, run):
    tree = EmbeddedMetadataStore(tmp_path / "empty.db")
    monkeypatch.setattr(zookeeper_groups, "_open", lambda _connect, _connection: tree.new_session())
    assert "has no topics; give the address from the brokers" in run("group", "list", *ZOOKEEPER).err
    tree.close()


def test_zookeeper_that_does_not_answer_is_told(cluster, monkeypatch, run):
    def nobody(_config):
        raise MetadataStoreUnavailableError("ZooKeeper at z:2181/barnabas granted no session within 5 s")

    monkeypatch.setattr("barnabas.coordination.zookeeper.metadata_store.ZooKeeperMetadataStore", nobody)
    failed = run("group", "list", *ZOOKEEPER)
    assert failed.err == "barnabas: ZooKeeper at z:2181/barnabas granted no session within 5 s\n"
