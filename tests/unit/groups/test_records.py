"""The records of `__consumer_offsets`, compared byte by byte with what Kafka's own classes write.

The bytes were written by the generated classes of Kafka 3.9.1's group coordinator.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import MalformedMessageError
from barnabas.groups import records
from barnabas.groups.hashing import java_hash, partition_of
from barnabas.groups.records import (
    Committed,
    GroupRecord,
    OffsetRecord,
    StoredGroup,
    StoredMember,
    decode_change,
    encode_change,
)
from barnabas.model import TopicPartition
from barnabas.protocol.codec import encode_bytes
from barnabas.protocol.messages.group_records import OffsetCommitValue

BY_KAFKA = {
    name: bytes.fromhex(text)
    for name, text in {
        "offset key 0": "00000007636cc3af636b730005766965777300000007",
        "offset key 1": "00010007636cc3af636b730005766965777300000007",
        "group key 2": "00020007636cc3af636b73",
        "offset value 0": "00000000011f71fb04cb000862792074c3a973740000018bcfe56800",
        "offset value 1": "00010000011f71fb04cb000862792074c3a973740000018bcfe568000000018bcfee8fc0",
        "offset value 2": "00020000011f71fb04cb000862792074c3a973740000018bcfe56800",
        "offset value 3": "00030000011f71fb04cb00000005000862792074c3a973740000018bcfe56800",
        "offset value 4": "00040000011f71fb04cb000000050962792074c3a973740000018bcfe5680000",
        "group value 0": "00000008636f6e73756d657200000003000572616e676500036d2d310000"
        "000200036d2d31000361707000092f31302e302e"
        "302e31000027100000000300010200000002030400036d2d320003617070"
        "00092f31302e302e302e3200004e200000000109"
        "00000000",
        "group value 1": "00010008636f6e73756d657200000003000572616e676500036d2d310000"
        "000200036d2d31000361707000092f31302e302e"
        "302e310000ea60000027100000000300010200000002030400036d2d3200"
        "0361707000092f31302e302e302e320000753000"
        "004e20000000010900000000",
        "group value 2": "00020008636f6e73756d657200000003000572616e676500036d2d310000"
        "018bcfe568010000000200036d2d310003617070"
        "00092f31302e302e302e310000ea60000027100000000300010200000002"
        "030400036d2d32000361707000092f31302e302e"
        "302e320000753000004e20000000010900000000",
        "group value 3": "00030008636f6e73756d657200000003000572616e676500036d2d310000"
        "018bcfe568010000000200036d2d310003692d31"
        "000361707000092f31302e302e302e310000ea6000002710000000030001"
        "0200000002030400036d2d32ffff000361707000"
        "092f31302e302e302e320000753000004e20000000010900000000",
        "group value 4": "000409636f6e73756d6572000000030672616e6765046d2d310000018bcf"
        "e5680103046d2d3104692d31046170700a2f3130"
        "2e302e302e310000ea60000027100400010203030400046d2d3200046170"
        "700a2f31302e302e302e320000753000004e2002"
        "09010000",
        "empty value 3": "00030008636f6e73756d657200000004ffffffff0000018bcfe5680200000000",
    }.items()
}

GROUP = "clïcks"
WHERE = TopicPartition("views", 7)
TOPIC_ID = bytes(range(16))
COMMITTED = Committed(1234567890123, "by tést", 5, 1700000000000)
FIRST = StoredMember("m-1", "i-1", "app", "/10.0.0.1", 60_000, 10_000, b"\0\1\2", b"\3\4")
SECOND = StoredMember("m-2", None, "app", "/10.0.0.2", 30_000, 20_000, b"\t", b"")
STORED = StoredGroup("consumer", 3, "range", "m-1", (FIRST, SECOND), 1700000000001)
EMPTY = StoredGroup("consumer", 4, since_ms=1700000000002)


@pytest.mark.parametrize("version", [0, 1])
def test_offset_is_read_from_every_version_of_the_key(version: int) -> None:
    found = decode_change(BY_KAFKA[f"offset key {version}"], BY_KAFKA["offset value 3"])
    assert found == OffsetRecord(GROUP, WHERE, COMMITTED)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, COMMITTED._replace(leader_epoch=-1)),
        (1, COMMITTED._replace(leader_epoch=-1, expires_ms=1700000600000)),
        (2, COMMITTED._replace(leader_epoch=-1)),
        (3, COMMITTED),
        (4, COMMITTED),
    ],
)
def test_offset_is_read_from_every_version_of_the_value(version: int, expected: Committed) -> None:
    found = decode_change(BY_KAFKA["offset key 1"], BY_KAFKA[f"offset value {version}"])
    assert found == OffsetRecord(GROUP, WHERE, expected)


@pytest.mark.parametrize("version", range(5))
def test_group_is_read_from_every_version_of_the_value(version: int) -> None:
    first, second, since_ms = FIRST, SECOND, 1700000000001
    if version < 1:  # the session timeout stands for both
        first = dataclasses.replace(first, rebalance_timeout_ms=10_000)
        second = dataclasses.replace(second, rebalance_timeout_ms=20_000)
    if version < 2:
        since_ms = -1
    if version < 3:
        first = dataclasses.replace(first, group_instance_id=None)
    expected = dataclasses.replace(STORED, members=(first, second), since_ms=since_ms)
    found = decode_change(BY_KAFKA["group key 2"], BY_KAFKA[f"group value {version}"])
    assert found == GroupRecord(GROUP, expected)


def test_group_is_written_as_kafka_writes_it() -> None:
    assert encode_change(GroupRecord(GROUP, STORED)) == (BY_KAFKA["group key 2"], BY_KAFKA["group value 3"])
    assert encode_change(GroupRecord(GROUP, EMPTY)) == (BY_KAFKA["group key 2"], BY_KAFKA["empty value 3"])
    assert decode_change(BY_KAFKA["group key 2"], BY_KAFKA["empty value 3"]) == GroupRecord(GROUP, EMPTY)


def test_offset_is_written_as_kafka_writes_it_with_the_topics_id_as_a_tagged_field() -> None:
    key, value = encode_change(OffsetRecord(GROUP, WHERE, COMMITTED))
    assert (key, value) == (BY_KAFKA["offset key 1"], BY_KAFKA["offset value 4"])
    key, value = encode_change(OffsetRecord(GROUP, WHERE, COMMITTED._replace(topic_id=TOPIC_ID)))
    assert value == BY_KAFKA["offset value 4"][:-1] + b"\1\0\x10" + TOPIC_ID
    assert decode_change(key, value) == OffsetRecord(GROUP, WHERE, COMMITTED._replace(topic_id=TOPIC_ID))


def test_tombstones_say_what_is_gone() -> None:
    for gone in (OffsetRecord(GROUP, WHERE, None), GroupRecord(GROUP, None)):
        key, value = encode_change(gone)
        assert value is None
        assert decode_change(key, value) == gone


def test_records_of_other_kinds_and_later_versions_are_skipped() -> None:
    assert decode_change(b"\0\3" + bytes(20), b"\0\0") is None  # a group of the next-generation protocol
    assert decode_change(BY_KAFKA["offset key 1"], b"\0\x05" + bytes(30)) is None
    assert decode_change(BY_KAFKA["group key 2"], b"\0\x05" + bytes(30)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\3"),
        (b"", None),
        (b"\0", None),
        (b"\0\1\0\x7f", None),
        (BY_KAFKA["offset key 1"], b""),
        (BY_KAFKA["offset key 1"], BY_KAFKA["offset value 3"][:-1]),
        (BY_KAFKA["group key 2"] + b"more", None),
        (BY_KAFKA["group key 2"], BY_KAFKA["group value 3"][:-1]),
    ],
)
def test_damaged_record_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(MalformedMessageError):
        decode_change(key, value)


@pytest.mark.parametrize(
    "impossible",
    [
        dataclasses.replace(STORED, members=(FIRST, FIRST)),
        dataclasses.replace(STORED, members=(FIRST, dataclasses.replace(SECOND, group_instance_id="i-1"))),
        dataclasses.replace(STORED, leader_id="m-9"),
        dataclasses.replace(STORED, protocol_name=None),
        dataclasses.replace(STORED, protocol_type=""),
        dataclasses.replace(EMPTY, generation=-1),
    ],
)
def test_group_that_cannot_be_is_refused(impossible: StoredGroup) -> None:
    with pytest.raises(MalformedMessageError):
        decode_change(*encode_change(GroupRecord(GROUP, impossible)))


def test_text_that_does_not_fit_is_refused() -> None:
    with pytest.raises(MalformedMessageError):
        encode_change(GroupRecord("g" * 40_000, None))


@given(st.binary(max_size=80), st.none() | st.binary(max_size=120))
def test_random_bytes_are_understood_skipped_or_refused(key: bytes, value: bytes | None) -> None:
    try:
        decode_change(key, value)
    except MalformedMessageError:
        return


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.text(max_size=20) | st.integers(120, 130).map(lambda size: "m" * size),
    st.integers(-1, 9),
    st.sampled_from([bytes(16), TOPIC_ID]),
    st.integers(-1, 2**62),
)
def test_offsets_are_read_back_as_they_were(
    offset: int, metadata: str, epoch: int, topic_id: bytes, committed_ms: int
) -> None:
    change = OffsetRecord("g", WHERE, Committed(offset, metadata, epoch, committed_ms, topic_id))
    assert decode_change(*encode_change(change)) == change


def decoded(key: bytes, value: bytes | None) -> object:
    """Return what a record says, or the error."""
    try:
        return decode_change(key, value)
    except MalformedMessageError as error:
        return str(error)


RECORDS = st.sampled_from(
    [
        encode_change(OffsetRecord("g", WHERE, Committed(5, "m", 1, 9, TOPIC_ID))),
        encode_change(GroupRecord("gr\u00fcn", StoredGroup("consumer", 3))),
    ]
)
DAMAGE = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=3)


@given(RECORDS, DAMAGE, DAMAGE, st.integers(-8, 1), st.integers(-8, 1))
def test_decoders_by_hand_agree_with_the_declared_messages(
    record: tuple[bytes, bytes], of_key: list[Any], of_value: list[Any], key_cut: int, value_cut: int
) -> None:
    def damaged(data: bytes, damage: list[tuple[int, int]], cut: int) -> bytes:
        changed = bytearray(data)
        for position, byte in damage:
            changed[position % len(changed)] = byte
        return bytes(changed[:cut] if cut < 0 else changed + bytes(cut))

    key, value = damaged(record[0], of_key, key_cut), damaged(record[1], of_value, value_cut)
    found = decoded(key, value)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_plain_offset_key", "_plain_group_key", "_plain_committed"):
            patch.setattr(records, name, lambda _data: None)
        assert found == decoded(key, value)


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = OffsetCommitValue(offset=5, metadata="", commit_timestamp=9)
    value = b"\0\4" + encode_bytes(plain, 4)[:-1] + b"\1\x07\x02ab"
    found = decode_change(BY_KAFKA["offset key 1"], value)
    assert found == OffsetRecord(GROUP, WHERE, Committed(5, committed_ms=9))


@pytest.mark.parametrize(
    ("group_id", "number"),
    [("", 0), ("clicks", -1357714453), ("clïcks", -1353722459), ("🐎", 1772401), ("polygenelubricants", -(2**31))],
)
def test_hash_is_javas(group_id: str, number: int) -> None:
    assert java_hash(group_id) == number


def test_partition_of_a_group_is_kafkas() -> None:
    assert partition_of("clicks", 50) == 1357714453 % 50
    assert partition_of("polygenelubricants", 50) == 0  # Utils.abs makes the least int 0
