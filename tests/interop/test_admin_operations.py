"""What operators do with `Admin` against a real broker: groups, settings, partitions, records, disks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

import barnabas
from barnabas import ApiError, ConfigSource, ErrorCode, TopicPartition
from tests.interop.clients.neutral import Membership
from tests.support.reading import Member, wait_until


@pytest.fixture
def admin(bootstrap: str) -> Iterator[barnabas.Admin]:
    with barnabas.Admin(bootstrap) as made:
        yield made


@contextlib.contextmanager
def member(bootstrap: str, group: str, topic: str, **settings: object) -> Iterator[barnabas.Consumer]:
    """A member of a group that has got its partitions, and goes on polling in a thread of its own."""
    joined, done = threading.Event(), threading.Event()
    with barnabas.Consumer(bootstrap, group=group, auto_offset_reset="earliest", **settings) as consumer:
        consumer.subscribe(topic, on_assign=lambda _partitions: joined.set())

        def poll() -> None:
            while not done.is_set():
                consumer.poll(timeout_s=0.1)

        thread = threading.Thread(target=poll)
        thread.start()
        try:
            assert joined.wait(60)
            yield consumer
        finally:
            done.set()
            thread.join()


def test_group_with_a_member_is_described(bootstrap, admin, topic, group):
    admin.create_topic(topic, partitions=2)
    with member(bootstrap, group, topic, client_id="reader", group_instance_id="one"):
        found = admin.describe_group(group)
        assert (found.state, found.protocol_type, found.assignor) == ("Stable", "consumer", "range")
        (only,) = found.members
        assert (only.client_id, only.instance_id, only.host) == ("reader", "one", "127.0.0.1")
        assert only.member_id
        assert only.topics == (topic,)
        assert only.partitions == (TopicPartition(topic, 0), TopicPartition(topic, 1))
        (listed,) = [each for each in admin.list_groups() if each.group == group]
        assert (listed.state, listed.protocol_type, listed.type) == ("Stable", "consumer", "classic")
        assert listed in admin.list_groups(states=["stable"], types=["Classic"])
        assert listed not in admin.list_groups(states=["Empty"])
        assert admin.list_groups(types=["share"]) == []
        assert found.coordinator in admin.brokers()
        with pytest.raises(ApiError, match="has members; stop them first") as refused:
            admin.delete_group(group)
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
        with pytest.raises(ApiError) as refused:
            admin.delete_group_offsets(group, [(topic, 0)])
        assert refused.value.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_members_of_every_client_are_described_with_what_they_read(bootstrap, admin, topic, group, client):
    admin.create_topic(topic, partitions=2)
    with Member(client, bootstrap, topic, Membership(group=group)) as member:
        wait_until(lambda: member.assigned == {0, 1}, "both partitions")
        (only,) = admin.describe_group(group).members
        assert only.topics == (topic,)
        assert only.partitions == (TopicPartition(topic, 0), TopicPartition(topic, 1))


def test_group_of_offsets_alone_is_deleted_step_by_step(admin, topic, group):
    admin.create_topic(topic, partitions=2)
    admin.set_group_offsets(group, {(topic, 0): 0, (topic, 1): 0})
    assert admin.describe_group(group).state == "Empty"
    admin.delete_group_offsets(group, [(topic, 0)])
    assert list(admin.group_offsets(group)) == [TopicPartition(topic, 1)]
    admin.delete_group(group)
    assert admin.group_offsets(group) == {}
    known, unknown = admin.describe_groups([group, "nobody"])
    assert not known.exists
    assert not unknown.exists


def test_groups_that_do_not_exist_are_refused(admin):
    with pytest.raises(ApiError, match="group 'nobody' does not exist") as refused:
        admin.delete_group("nobody")
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(ApiError, match="GROUP_ID_NOT_FOUND"):
        admin.delete_group_offsets("nobody", [("t", 0)])


def test_topic_grows_and_does_not_shrink(admin, topic):
    admin.create_topic(topic)
    admin.add_partitions(topic, 3)
    assert len(admin.describe_topics([topic])[0].partitions) == 3
    with pytest.raises(ApiError, match="INVALID_PARTITIONS"):
        admin.add_partitions(topic, 2)
    with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        admin.add_partitions("nothing", 2)


def test_settings_of_a_topic_are_shown_set_and_unset(admin, topic):
    admin.create_topic(topic, config={"segment.bytes": "1000000"})
    before = admin.describe_config(topic)
    assert before["segment.bytes"].value == "1000000"
    assert before["segment.bytes"].source is ConfigSource.TOPIC
    assert before["segment.bytes"].default == "1073741824"
    assert before["retention.ms"].is_default
    assert "older" in before["retention.ms"].documentation
    admin.alter_config(topic, to_set={"retention.ms": "5000"}, to_unset=["segment.bytes"])
    after = admin.describe_config(topic)
    assert (after["retention.ms"].value, after["retention.ms"].source.label) == ("5000", "topic")
    assert after["segment.bytes"].is_default


def test_settings_that_cannot_be_are_refused_and_nothing_changes(admin, topic):
    admin.create_topic(topic)
    with pytest.raises(ApiError, match="INVALID_CONFIG"):
        admin.alter_config(topic, to_set={"retention.ms": "5000", "no.such": "1"})
    assert admin.describe_config(topic)["retention.ms"].is_default
    with pytest.raises(ApiError, match="topic 'nothing' does not exist"):
        admin.describe_config("nothing")
    with pytest.raises(barnabas.ConfigurationError, match="settings need exactly one owner"):
        admin.describe_config()


def test_settings_of_a_group_are_set_and_shown(admin, group):
    name = "consumer.session.timeout.ms"
    assert admin.describe_config(group=group)[name].is_default
    admin.alter_config(group=group, to_set={name: "50000"})
    found = admin.describe_config(group=group)[name]
    assert (found.value, found.source, found.default) == ("50000", ConfigSource.GROUP, "45000")
    with pytest.raises(ApiError, match=r"unknown group setting 'retention\.ms'"):
        admin.alter_config(group=group, to_set={"retention.ms": "1"})
    admin.alter_config(group=group, to_unset=[name])
    assert admin.describe_config(group=group)[name].is_default
    with pytest.raises(barnabas.ConfigurationError, match="settings need exactly one owner"):
        admin.describe_config("clicks", group=group)


def test_settings_of_a_broker_are_shown_and_cannot_be_changed(admin):
    found = admin.describe_config(broker=0)["group.min.session.timeout.ms"]
    assert (found.value, found.source, found.is_read_only) == ("500", ConfigSource.STATIC_BROKER, True)
    with pytest.raises(ApiError, match="INVALID_REQUEST"):
        admin.alter_config(broker=0, to_set={"num.partitions": "2"})


def test_records_before_an_offset_are_deleted(bootstrap, admin, topic):
    admin.create_topic(topic, partitions=2)
    with barnabas.Producer(bootstrap) as producer:
        for partition in (0, 1):
            producer.send_many(topic, [b"x"] * 5, partition=partition)
    assert admin.delete_records({(topic, 0): 3, (topic, 1): -1}) == {(topic, 0): 3, (topic, 1): 5}
    assert admin.beginning_offsets([(topic, 0), (topic, 1)]) == {(topic, 0): 3, (topic, 1): 5}
    with pytest.raises(ApiError, match="offset 9 is greater than the high watermark"):
        admin.delete_records({(topic, 0): 9})
    assert admin.delete_records({}) == {}


def test_cluster_and_its_disks_are_described(bootstrap, shared_broker, admin, topic):
    admin.create_topic(topic)
    with barnabas.Producer(bootstrap) as producer:
        producer.send(topic, b"x" * 10_000)
    found = admin.describe_cluster()
    assert found.id
    assert found.controller == found.brokers[0]
    assert [f"{node.host}:{node.port}" for node in found.brokers] == [bootstrap]
    (folder,) = admin.log_dirs()
    assert (folder.broker, folder.path, folder.error) == (0, str(shared_broker.data), ErrorCode.NONE)
    assert folder.sizes[TopicPartition(topic, 0)] > 10_000
    assert folder.size_bytes >= folder.sizes[TopicPartition(topic, 0)]
    assert folder.total_bytes is not None
    assert folder.usable_bytes is not None
