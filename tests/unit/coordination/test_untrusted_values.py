"""Values of the metadata tree that no broker writes: refused where they are read, and reported once."""

from __future__ import annotations

import json
import logging

import pytest

from barnabas.coordination import configs, paths, topic_metadata_store
from barnabas.coordination.damaged_nodes import report_damaged
from barnabas.coordination.fields import DamagedNodeError, Fields
from barnabas.coordination.metadata_store import MetadataStore, NodeError
from barnabas.coordination.offsets import groups_with_offsets, read_committed_offsets
from barnabas.coordination.values import (
    UNREADABLE,
    decode_broker,
    decode_cluster_id,
    decode_config,
    decode_deletion,
    decode_offset,
    decode_partition_state,
    decode_producer_id_counter,
    decode_topic,
)
from barnabas.model import TopicPartition

BROKER = {"version": 5, "host": "here", "port": 9092, "timestamp": "1", "endpoints": []}
TOPIC = {"version": 3, "topic_id": "AAECAwQFBgcICQoLDA0ODw", "partitions": {"0": [1, 2]}}
STATE = {"version": 1, "leader": 1, "leader_epoch": 4, "isr": [1, 2]}
NUMBERS = [-7, 2**31, 2**40, 2**63, 10**4_000, 1.5, True, None, [], {}, "x", " 1", "1_0", "\u0661", "9" * 10_000]
TEXTS = ["\ud800", "x" * 40_000, 7, [], {}, True]


def with_field(fields: dict[str, object], name: str, value: object) -> bytes:
    return json.dumps({**fields, name: value}).encode()


@pytest.mark.parametrize(
    "name",
    ["2147483648", "-1", "01", "+1", "1 ", "x", "\u0661", "9" * 5_000, "1.0", ""],
)
def test_id_of_a_broker_has_31_bits(name: str) -> None:
    with pytest.raises(DamagedNodeError):
        decode_broker(f"/brokers/ids/{name}", json.dumps(BROKER).encode())


@pytest.mark.parametrize("port", [*NUMBERS, 0, 65_536])
def test_port_has_16_bits(port: object) -> None:
    with pytest.raises(DamagedNodeError):
        decode_broker("/brokers/ids/1", with_field(BROKER, "port", port))
    with pytest.raises(DamagedNodeError):
        decode_broker("/brokers/ids/1", with_field(BROKER, "endpoints", [f"REPLICATION://here:{port!s:.300}"]))


@pytest.mark.parametrize("name", ["host", "rack", "folder_id", "release", "machine"])
@pytest.mark.parametrize("text", TEXTS)
def test_texts_of_a_broker_fit_a_frame(name: str, text: object) -> None:
    with pytest.raises(DamagedNodeError) as caught:
        decode_broker("/brokers/ids/1", with_field(BROKER, name, text))
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", ["leader", "leader_epoch"])
@pytest.mark.parametrize("number", [*NUMBERS, 2**31 - 1])
def test_numbers_of_a_partition_state_are_bounded(name: str, number: object) -> None:
    with pytest.raises(DamagedNodeError):
        decode_partition_state("/state", with_field(STATE, name, number))


@pytest.mark.parametrize("ids", [[1, 1], [-1], [2**31], ["1"], [True], [[1]], [1.0], 7, None, "1", {"1": 1}])
def test_lists_of_brokers_name_each_once(ids: object) -> None:
    with pytest.raises(DamagedNodeError):
        decode_partition_state("/state", with_field(STATE, "isr", ids))
    with pytest.raises(DamagedNodeError):
        decode_topic("/topic", with_field(TOPIC, "partitions", {"0": ids}))


def test_leader_is_in_sync() -> None:
    with pytest.raises(DamagedNodeError, match="leader 3 is not in the ISR"):
        decode_partition_state("/state", with_field(STATE, "leader", 3))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topic_id", "AAEC"),
        ("topic_id", "AAECAwQFBgcICQoLDA0OD*"),
        ("topic_id", 7),
        ("partitions", {"0": []}),
        ("partitions", {"1": [1]}),
        ("partitions", {"00": [1]}),
        ("partitions", [[1]]),
        ("adding_replicas", {"0": [3]}),
        ("adding_replicas", {"1": [1]}),
        ("adding_replicas", {"x": [1]}),
        ("adding_replicas", {"9" * 5_000: [1]}),
        ("removing_replicas", {"0": [1, 2]}),
        ("removing_replicas", {"-1": [1]}),
    ],
)
def test_topic_that_no_broker_writes_is_refused(name: str, value: object) -> None:
    with pytest.raises(DamagedNodeError):
        decode_topic("/topic", with_field(TOPIC, name, value))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[" * 500_000,
        b'{"a":' * 200_000,
        b"9" * 10_000,
        b'{"isr":' + b"9" * 10_000 + b"}",
        b"NaN",
        b"null",
        b'"x"',
        b"\x00",
        b'{"a": Infinity}x',
        b"\xff\xfe{\x00}\x00",
    ],
)
def test_data_that_is_no_object_is_refused_with_a_short_reason(data: bytes) -> None:
    for decode in (decode_topic, decode_partition_state, decode_producer_id_counter, decode_cluster_id):
        with pytest.raises(DamagedNodeError) as caught:
            decode("/node", data)
        assert len(str(caught.value)) < 500
    with pytest.raises(DamagedNodeError):
        decode_broker("/brokers/ids/1", data)


@pytest.mark.parametrize("end", ["x", -7, 10**400, 2**63 - 500, 2**62 + 1, None])
def test_producer_ids_leave_room_for_others(end: object) -> None:
    with pytest.raises(DamagedNodeError):
        decode_producer_id_counter("/block", json.dumps({"block_end": end}).encode())


@pytest.mark.parametrize("data", [b"9" * 19, b"9" * 5_000, b'{"offset":-1}', b'{"offset":1,"metadata":"\\ud800"}'])
def test_committed_offset_has_63_bits(data: bytes) -> None:
    with pytest.raises(DamagedNodeError):
        decode_offset("/offset", data)


def test_format_that_cannot_be_one_is_no_later_release() -> None:
    with pytest.raises(DamagedNodeError):
        decode_cluster_id("/cluster/id", b'{"id":"castle","format":1099511627776}')


@pytest.mark.parametrize("data", [b'{"name":"../x","brokers":[1]}', b"\x00\x01", b'{"name":"x","brokers":[true]}'])
def test_note_of_a_deletion_names_a_topic(data: bytes) -> None:
    with pytest.raises(DamagedNodeError):
        decode_deletion("/note", data)


def test_settings_have_text_that_fits_a_frame() -> None:
    data = b'{"config":{"a":5,"b":true,"c":"%s","d":[1],"%s":"1","\\ud800":"1"}}' % (b"x" * 40_000, b"e" * 300)
    found = decode_config("/config", data)
    assert found["a"] == "5"
    assert found["b"] == "true"
    assert found.keys() == {"a", "b", "c", "d"}
    assert len(found["c"]) < 100


def test_field_that_is_wrong_is_named() -> None:
    with pytest.raises(DamagedNodeError, match=r"field 'port': 0 is not a whole number from 1 to 65535"):
        Fields("/x", b'{"port":0}').integer("port", 1, 65_535)


def test_names_of_strangers_are_skipped_and_reported_once(
    tree: MetadataStore, caplog: pytest.LogCaptureFixture
) -> None:
    topic_metadata_store.prepare(tree, "castle")
    topic_metadata_store.create_topic(tree, "clicks", bytes(range(16)), [[1]])
    strange = ["%FF", "no json", "%2f", "a%", "%C3", "x" * 250, "%2E"]
    for folder in (paths.TOPICS, paths.CONSUMERS, paths.GROUP_CONFIGS):
        for name in strange:
            tree.create(f"{folder}/{name}", b"{}", make_parents=True)
    for _ in range(3):
        assert [name for name, _ in topic_metadata_store.each_topic(tree)] == ["clicks"]
        assert groups_with_offsets(tree) == [".", "x" * 250]
        assert configs.read_group_configs(tree) == {".": {}, "x" * 250: {}}
    lines = [each.getMessage() for each in caplog.records]
    assert len([each for each in lines if "/brokers/topics/" in each]) == len(strange)
    assert len(lines) == len(set(lines))


def test_damaged_nodes_are_reported_once_and_many_in_few_lines(
    tree: MetadataStore, caplog: pytest.LogCaptureFixture
) -> None:
    many: list[NodeError] = [DamagedNodeError(f"/brokers/ids/x{number}", "no number") for number in range(5_000)]
    for _ in range(3):
        report_damaged(tree, many)
    assert len(caplog.records) == 11
    assert "skipping 4990 more nodes" in caplog.records[-1].getMessage()
    report_damaged(tree, [DamagedNodeError("/brokers/ids/x1", "another reason")])
    assert len(caplog.records) == 12


def test_state_that_cannot_be_read_keeps_no_other_from_being_read(
    tree: MetadataStore, caplog: pytest.LogCaptureFixture
) -> None:
    topic_metadata_store.prepare(tree, "castle")
    made = topic_metadata_store.create_topic(tree, "clicks", bytes(range(16)), [[1, 2], [1, 2]])
    path = paths.partition_state(TopicPartition("clicks", 0))
    tree.set(path, b"nonsense")
    topic = topic_metadata_store.read_topic(tree, "clicks")
    assert topic is not None
    assert [each.state for each in topic.partitions] == [UNREADABLE, made.partitions[1].state]
    wanted = [
        topic_metadata_store.StateChange(TopicPartition("clicks", number), made.topic_id, each.state, each.version + 1)
        for number, each in enumerate(made.partitions)
    ]
    assert [each.state for each in topic_metadata_store.read_partition_states(tree, wanted)] == [
        UNREADABLE,
        made.partitions[1].state,
    ]
    assert len([each for each in caplog.records if each.levelno == logging.WARNING]) == 1


def test_offset_that_cannot_be_read_keeps_no_other_from_being_read(tree: MetadataStore) -> None:
    topic_metadata_store.prepare(tree, "castle")
    folder = paths.group_offsets("g")
    for path in ("clicks/0", "clicks/x", "clicks/-1", "%FF/0", "clicks/0/more", "clicks/1"):
        tree.create(f"{folder}/{path}", b"7", make_parents=True)
    tree.set(f"{folder}/clicks/1", b"9" * 30)
    assert {where: each.offset.offset for where, each in read_committed_offsets(tree, "g").items()} == {
        TopicPartition("clicks", 0): 7
    }


def test_producer_ids_are_taken_where_the_block_cannot_be_read(tree: MetadataStore) -> None:
    for data in (b"nonsense", b"{}", b'{"block_end":"9223372036854775307"}'):
        tree.create(paths.PRODUCER_ID_BLOCK, data)
        assert topic_metadata_store.take_producer_ids(tree, 1)[0] >= 0
        tree.delete(paths.PRODUCER_ID_BLOCK)


def test_roots_that_somebody_deleted_are_made_again(tree: MetadataStore) -> None:
    topic_metadata_store.ensure_roots(tree)
    tree.delete(paths.CHANGES)
    topic_metadata_store.register_broker(tree, topic_metadata_store.BrokerRegistration(1, "here", 1))
    assert topic_metadata_store.read_brokers(tree).keys() == {1}


def test_cluster_id_that_cannot_be_read_is_written_again(tree: MetadataStore) -> None:
    topic_metadata_store.prepare(tree, "castle")
    tree.set(paths.CLUSTER_ID, b"nonsense")
    assert topic_metadata_store.prepare(tree, "village", "castle") == "castle"
    assert topic_metadata_store.prepare(tree, "other", "village") == "castle"


def test_cluster_id_of_a_folder_counts_only_where_the_tree_has_topics(tree: MetadataStore) -> None:
    assert topic_metadata_store.prepare(tree, "castle", "village") == "castle"
    topic_metadata_store.create_topic(tree, "clicks", bytes(range(16)), [[1]])
    tree.delete(paths.CLUSTER_ID)
    assert topic_metadata_store.prepare(tree, "other", "castle") == "castle"
