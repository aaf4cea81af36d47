"""Long messages in slices: the same as at once, with pauses, and within a budget."""

from __future__ import annotations

import pytest

from barnabas.errors import MalformedMessageError
from barnabas.protocol.codec import decode, decode_in_slices, encode, encode_bytes, encode_in_slices, skip_tags
from barnabas.protocol.compiler import SLICE_ENTRIES, TAGS_MAX, EntryBudget, write_uvarint
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.support.steps import at_once, counted

LIMIT = 1_000_000


def fetch_of(topics: int, partitions: int) -> FetchRequest:
    wanted = [FetchPartition(partition=n, fetch_offset=n, partition_max_bytes=1) for n in range(partitions)]
    return FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=f"t{n}", partitions=wanted) for n in range(topics)]
    )


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_request_decoded_in_slices_is_the_same(version: int) -> None:
    request = fetch_of(10, 100)
    data = encode_bytes(request, version)
    decoded, pauses = counted(decode_in_slices(FetchRequest, data, version, 0, [], EntryBudget(2_000)))
    assert decoded == decode(FetchRequest, data, version) == request
    assert pauses >= 1_000 / SLICE_ENTRIES


def test_many_short_arrays_pause_as_well_as_a_long_one() -> None:
    data = encode_bytes(fetch_of(1_000, 1), 12)
    _, pauses = counted(decode_in_slices(FetchRequest, data, 12, 0, [], EntryBudget(2_000)))
    assert pauses >= 1_000


def test_a_message_without_arrays_needs_no_pause() -> None:
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    data = encode_bytes(beat, 4)
    assert counted(decode_in_slices(HeartbeatRequest, data, 4, 0, [], EntryBudget(0))) == (beat, 0)


@pytest.mark.parametrize("entries_max", [1_009, 99])
def test_entries_over_the_budget_are_refused_before_they_are_made(entries_max: int) -> None:
    data = encode_bytes(fetch_of(10, 100), 12)
    budget = EntryBudget(entries_max)
    with pytest.raises(MalformedMessageError, match=f"limit of {entries_max} entries"):
        at_once(decode_in_slices(FetchRequest, data, 12, 0, [], budget))
    at_once(decode_in_slices(FetchRequest, data, 12, 0, [], EntryBudget(1_010)))


def test_numbers_and_structs_without_content_are_entries_too() -> None:
    numbers = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=list(range(500)))]
    )
    empty = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        member_id="",
        protocol_type="",
        protocols=[JoinGroupRequestProtocol(name="", metadata=b"")] * 500,
    )
    for message, version in ((numbers, 7), (empty, 6)):
        data = encode_bytes(message, version)
        with pytest.raises(MalformedMessageError, match="limit of 499 entries"):
            at_once(decode_in_slices(type(message), data, version, 0, [], EntryBudget(499)))


@pytest.mark.parametrize("version", [11, 12])
def test_an_answer_encoded_in_slices_is_the_same(version: int) -> None:
    partitions = [
        PartitionData(partition_index=n, error_code=0, high_watermark=n, records=b"r" * (n % 3)) for n in range(200)
    ]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)] * 5)
    chunks, pauses = counted(encode_in_slices(response, version, b"head", LIMIT))
    assert b"".join(chunks) == b"head" + encode_bytes(response, version)
    assert pauses >= 1_000 / SLICE_ENTRIES


def test_an_answer_over_its_limit_is_refused() -> None:
    partitions = [PartitionData(partition_index=n, error_code=0, high_watermark=n, records=b"") for n in range(200)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    with pytest.raises(MalformedMessageError, match="a FetchResponse exceeds 1000 bytes"):
        at_once(encode_in_slices(response, 12, b"", 1_000))


def test_empty_records_make_no_chunks() -> None:
    """A reader of 10,000 partitions gets nothing from most of them."""
    partitions = [PartitionData(partition_index=n, error_code=0, high_watermark=n, records=b"") for n in range(200)]
    partitions[7].records = b"records"
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    assert len(encode(response, 12)) == 3


def uvarint(value: int) -> bytes:
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)


def test_more_tagged_fields_than_any_struct_has_are_refused() -> None:
    """They are skipped, and a frame of a few MB has room for millions of them."""
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    data = encode_bytes(beat, 4)[:-1]
    some, many = b"\x09\x00" * TAGS_MAX, b"\x09\x00" * (TAGS_MAX + 1)
    assert decode(HeartbeatRequest, data + uvarint(TAGS_MAX) + some, 4) == beat
    with pytest.raises(MalformedMessageError, match="10001 tagged fields"):
        decode(HeartbeatRequest, data + uvarint(TAGS_MAX + 1) + many, 4)
    assert skip_tags(uvarint(TAGS_MAX) + some, 0) == 2 + len(some)
    with pytest.raises(MalformedMessageError, match="10001 tagged fields"):
        skip_tags(uvarint(TAGS_MAX + 1) + many, 0)
