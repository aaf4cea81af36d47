"""Node paths: Kafka 0.8's, with every name safe in them."""

from __future__ import annotations

import pytest

from barnabas.coordination import paths
from barnabas.coordination.metadata_store import check_path
from barnabas.model import TopicPartition

NAMES = ["clicks", "a/b", "", ".", "..", "...", "%", "%2F", "a b", "naïve 群", "\0\n", "\ud800", "x" * 300]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_one_part_of_a_path_and_comes_back(name):
    part = paths.encode_name(name)
    assert check_path(f"/{part}")
    assert "/" not in part
    assert paths.decode_name(part) == name


def test_no_two_names_share_a_part():
    assert len({paths.encode_name(name) for name in NAMES}) == len(NAMES)


def test_paths_are_those_of_kafka():
    clicks = TopicPartition("clicks", 3)
    assert paths.broker(1) == "/brokers/ids/1"
    assert paths.topic("clicks") == "/brokers/topics/clicks"
    assert paths.partition_state(clicks) == "/brokers/topics/clicks/partitions/3/state"
    assert paths.topic_config("clicks") == "/config/topics/clicks"
    assert paths.group_member("ctr", "host-1") == "/consumers/ctr/ids/host-1"
    assert paths.group_owner("ctr", clicks) == "/consumers/ctr/owners/clicks/3"
    assert paths.group_offset("a/b", clicks) == "/consumers/a%2Fb/offsets/clicks/3"


def test_partition_of_an_offset_is_read_from_its_path():
    path = paths.group_offset("g/h", TopicPartition("clicks.x", 12))
    assert paths.partition_of_offset(path) == TopicPartition("clicks.x", 12)
