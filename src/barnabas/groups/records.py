"""The records of `__consumer_offsets`: their decoded form, encoding and decoding.

A broker that becomes the coordinator of a group recreates the group from these records, with the same members,
generation and assignment. The encoder writes the record versions of Kafka 4, and the decoder reads all versions. A
tombstone deletes an offset or a group.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from barnabas.errors import MalformedMessageError
from barnabas.model import NO_LEADER_EPOCH, NO_TIMESTAMP, TopicPartition
from barnabas.protocol.codec import Buffer, decode, encode_bytes
from barnabas.protocol.declare import ZERO_UUID, message_of
from barnabas.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)


class Committed(NamedTuple):
    """A committed offset in memory. It is a tuple, because there may be millions of committed offsets."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH
    committed_ms: int = NO_TIMESTAMP
    topic_id: bytes = ZERO_UUID
    """The topic id at the time of the commit, or zero if the record does not contain it (Kafka before 4.1)."""
    expires_ms: int = NO_TIMESTAMP
    """The expiration time that the committing client requested, if any (OffsetCommit versions 2 to 4, with Kafka before
    2.1).
    """


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member of a stored generation. `subscription` is the member's metadata for the selected protocol."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """The stored state of a group: a complete generation, or a group without members."""

    protocol_type: str
    generation: int
    protocol_name: str | None = None
    leader_id: str | None = None
    members: tuple[StoredMember, ...] = ()
    since_ms: int = NO_TIMESTAMP
    """The wall-clock time in ms at which the group entered this state."""


OFFSET_KEY_VERSION = 1
OFFSET_VALUE_VERSION = 4
"""The first version of an offset value that contains the topic id. Kafka 3.5 and later versions can read it (KIP-915).
"""
GROUP_KEY_VERSION = 2
GROUP_VALUE_VERSION = 3

_KEYS_REMEMBERED = 16_384
"""The number of encoded offset keys in the cache. Groups repeatedly commit offsets for the same partitions."""

_VERSION = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_TEXT_BYTES_MAX = 2**15 - 1
"""The maximum size of a string in bytes. Its length field is a signed 16-bit number."""
_KEY_HEAD_BYTES = 4
"""The size in bytes of the version and of the group id's length field, at the beginning of a key."""

_OFFSET_KEYS = message_of(OffsetCommitKey).versions
_GROUP_KEYS = message_of(GroupMetadataKey).versions
_OFFSET_VALUES = message_of(OffsetCommitValue).versions
_GROUP_VALUES = message_of(GroupMetadataValue).versions


class OffsetRecord(NamedTuple):
    """A record with the committed offset of a group in a partition. `committed` is None for a tombstone."""

    group_id: str
    where: TopicPartition
    committed: Committed | None


class GroupRecord(NamedTuple):
    """A record with the state of a group. `stored` is None for a tombstone."""

    group_id: str
    stored: StoredGroup | None


Change: TypeAlias = OffsetRecord | GroupRecord


def encode_change(change: Change, now_ms: int | None = None) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record.

    :param now_ms: the time in ms at which a group entered its state, or None to keep the time in the record.
    :raises MalformedMessageError: a string is too long for the record.
    """
    if isinstance(change, OffsetRecord):
        key = _offset_key(change.group_id, change.where)
        return key, None if change.committed is None else offset_value(change.committed)
    key = _VERSION.pack(GROUP_KEY_VERSION) + encode_bytes(GroupMetadataKey(group=change.group_id), GROUP_KEY_VERSION)
    stored = change.stored
    if stored is not None and now_ms is not None:
        stored = replace(stored, since_ms=now_ms)
    return key, None if stored is None else _group_value(stored)


def decode_change(key: Buffer | None, value: Buffer | None) -> Change | None:
    """Decode a record. Return None for other kinds of records and for later versions.

    :raises MalformedMessageError: the record is damaged.
    """
    if key is None:
        raise MalformedMessageError("the record has no key")
    kind = _version(key)
    if kind in _OFFSET_KEYS:
        return _offset_change(*(_plain_offset_key(key) or _any_offset_key(key, kind)), value)
    if kind in _GROUP_KEYS:
        return _group_change(_plain_group_key(key) or decode(GroupMetadataKey, key, kind, _VERSION.size).group, value)
    return None


def _offset_change(group_id: str, where: TopicPartition, value: Buffer | None) -> OffsetRecord | None:
    if value is None:
        return OffsetRecord(group_id, where, None)
    version = _version(value)
    if version not in _OFFSET_VALUES:
        return None
    committed = _plain_committed(value) if version == OFFSET_VALUE_VERSION else None
    return OffsetRecord(
        group_id, where, committed or _committed(decode(OffsetCommitValue, value, version, _VERSION.size))
    )


def _group_change(group_id: str, value: Buffer | None) -> GroupRecord | None:
    if value is None:
        return GroupRecord(group_id, None)
    version = _version(value)
    if version not in _GROUP_VALUES:
        return None
    return GroupRecord(group_id, _stored(decode(GroupMetadataValue, value, version, _VERSION.size)))


def _any_offset_key(key: Buffer, version: int) -> tuple[str, TopicPartition]:
    message = decode(OffsetCommitKey, key, version, _VERSION.size)
    return message.group, TopicPartition(message.topic, message.partition)


def _plain_group_key(key: Buffer) -> str:
    """Decode a group key without the generic decoder, because loading decodes many keys.

    Return an empty id for a damaged key.
    """
    try:
        if _KEY_HEAD_BYTES + (key[2] << 8 | key[3]) == len(key) <= _TEXT_BYTES_MAX:
            return str(key[_KEY_HEAD_BYTES:], "utf-8")
    except (IndexError, UnicodeDecodeError):
        pass
    return ""


def _plain_offset_key(key: Buffer) -> tuple[str, TopicPartition] | None:
    """Decode an offset key without the generic decoder, because loading decodes many keys.

    Return None for a damaged key.
    """
    try:
        group_end = _KEY_HEAD_BYTES + (key[2] << 8 | key[3])
        topic_start = group_end + 2
        topic_end = topic_start + (key[group_end] << 8 | key[group_end + 1])
        (number,) = _PARTITION.unpack_from(key, topic_end)
        if topic_end + _PARTITION.size == len(key) <= _TEXT_BYTES_MAX:
            return str(key[_KEY_HEAD_BYTES:group_end], "utf-8"), TopicPartition(
                str(key[topic_start:topic_end], "utf-8"), number
            )
    except (IndexError, struct.error, UnicodeDecodeError):
        pass
    return None


def _version(data: Buffer) -> int:
    try:
        version: int = _VERSION.unpack_from(data)[0]
    except struct.error:
        raise MalformedMessageError(f"{len(data)} bytes, too few for a version") from None
    return version


@functools.lru_cache(maxsize=_KEYS_REMEMBERED)
def _offset_key(group_id: str, where: TopicPartition) -> bytes:
    message = OffsetCommitKey(group=group_id, topic=where.topic, partition=where.partition)
    return _VERSION.pack(OFFSET_KEY_VERSION) + encode_bytes(message, OFFSET_KEY_VERSION)


_OFFSET_HEAD = struct.Struct(">hqi")
_OFFSET_TAIL = struct.Struct(">qBBB16s")
_TOPIC_ID_FIELD = [1, 0, 16]
"""The encoding of a tagged field section with one field: tag 0 with a size of 16 bytes."""
_SHORT_BYTES = 126
"""The maximum size of a compact string whose length field takes one byte."""


def offset_value(committed: Committed) -> bytes:
    """Encode an offset value without the generic encoder, because each commit needs it."""
    offset, text, leader_epoch, committed_ms, topic_id, expires_ms = committed
    metadata = text.encode()
    if expires_ms >= 0 or topic_id == ZERO_UUID or len(metadata) > _SHORT_BYTES:
        return _any_offset_value(committed)
    head = _OFFSET_HEAD.pack(OFFSET_VALUE_VERSION, offset, leader_epoch)
    tail = _OFFSET_TAIL.pack(committed_ms, *_TOPIC_ID_FIELD, topic_id)
    return b"%b%c%b%b" % (head, len(metadata) + 1, metadata, tail)


def _plain_committed(value: Buffer) -> Committed | None:
    """Decode an offset value in the format of `offset_value`. Return None for other formats."""
    tail = len(value) - _OFFSET_TAIL.size
    if tail < _OFFSET_HEAD.size + 1 or value[_OFFSET_HEAD.size] != tail - _OFFSET_HEAD.size:
        return None
    committed_ms, *tagged, topic_id = _OFFSET_TAIL.unpack_from(value, tail)
    if tagged != _TOPIC_ID_FIELD:
        return None
    _, offset, leader_epoch = _OFFSET_HEAD.unpack_from(value)
    try:
        metadata = str(value[_OFFSET_HEAD.size + 1 : tail], "utf-8")
    except UnicodeDecodeError:
        return None
    return Committed(offset, metadata, leader_epoch, committed_ms, topic_id)


def _any_offset_value(committed: Committed) -> bytes:
    # As in Kafka, only version 1 contains an expire timestamp.
    version = OFFSET_VALUE_VERSION if committed.expires_ms < 0 else 1
    message = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.committed_ms,
        expire_timestamp=committed.expires_ms,
        topic_id=committed.topic_id,
    )
    return _VERSION.pack(version) + encode_bytes(message, version)


def _committed(value: OffsetCommitValue) -> Committed:
    return Committed(
        value.offset,
        value.metadata,
        value.leader_epoch,
        value.commit_timestamp,
        value.topic_id,
        value.expire_timestamp,
    )


def _group_value(stored: StoredGroup) -> bytes:
    message = GroupMetadataValue(
        protocol_type=stored.protocol_type,
        generation=stored.generation,
        protocol=stored.protocol_name,
        leader=stored.leader_id,
        current_state_timestamp=stored.since_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in stored.members
        ],
    )
    return _VERSION.pack(GROUP_VALUE_VERSION) + encode_bytes(message, GROUP_VALUE_VERSION)


def _stored(value: GroupMetadataValue) -> StoredGroup:
    """Return the stored state of a group from a decoded value.

    :raises MalformedMessageError: the values contradict each other.
    """
    members = tuple(
        StoredMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout or member.session_timeout,
            member.session_timeout,
            member.subscription,
            member.assignment,
        )
        for member in value.members
    )
    ids = {member.member_id for member in members}
    if len(members) > 1:
        instances = [member.group_instance_id for member in members if member.group_instance_id is not None]
        if len(ids) < len(members) or len(set(instances)) < len(instances):
            raise MalformedMessageError("a group contains a member twice")
    if members and (value.protocol is None or not value.protocol_type or value.leader not in ids):
        raise MalformedMessageError("a group with members has no protocol, or its leader is not a member")
    if value.generation < 0:
        raise MalformedMessageError(f"a group has the negative generation {value.generation}")
    return StoredGroup(
        value.protocol_type, value.generation, value.protocol, value.leader, members, value.current_state_timestamp
    )
