"""The codec's rules that a round trip does not show."""

from __future__ import annotations

import struct

import pytest

from barnabas.errors import MalformedMessageError, UnsupportedVersionError
from barnabas.model import FileRegion
from barnabas.protocol.codec import decode, encode, encode_bytes
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
    PartitionData,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.metadata import MetadataRequest


def heartbeat(instance: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=instance)


def test_setting_a_field_that_the_version_lacks_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="group_instance_id cannot be sent in version 2"):
        encode_bytes(heartbeat("static"), 2)


def test_an_ignorable_field_is_dropped_where_the_version_lacks_it() -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], rack_id="r1")
    assert decode(FetchRequest, encode_bytes(request, 4), 4).rack_id == ""


def test_a_list_that_the_version_lacks_must_be_empty() -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], forgotten_topics_data=[ForgottenTopic(topic="t")])
    with pytest.raises(UnsupportedVersionError, match="forgotten_topics_data"):
        encode_bytes(request, 6)


def test_null_and_empty_are_different() -> None:
    everything, nothing = MetadataRequest(topics=None), MetadataRequest(topics=[])
    for version in range(1, 13):
        assert decode(MetadataRequest, encode_bytes(everything, version), version).topics is None
        assert decode(MetadataRequest, encode_bytes(nothing, version), version).topics == []


def test_a_struct_that_may_be_null_has_a_byte_before_it() -> None:
    for cursor, tail in ((None, b"\xff"), (Cursor(topic_name="t", partition_index=3), b"\1\2t\0\0\0\3\0")):
        request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=7, cursor=cursor)
        data = encode_bytes(request, 0)
        assert data == b"\1\0\0\0\7" + tail + b"\0"
        assert decode(DescribeTopicPartitionsRequest, data, 0) == request


def test_null_is_refused_where_the_version_has_none() -> None:
    with pytest.raises(MalformedMessageError, match=r"MetadataRequest.topics is null"):
        encode_bytes(MetadataRequest(topics=None), 0)
    with pytest.raises(MalformedMessageError, match=r"HeartbeatRequest.group_id is null"):
        decode(HeartbeatRequest, b"\xff\xff" + bytes(6), 0)


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="0 to 4, not 5"):
        encode_bytes(heartbeat(), 5)


def test_bytes_left_over_are_refused() -> None:
    with pytest.raises(MalformedMessageError, match="1 bytes left over"):
        decode(HeartbeatRequest, encode_bytes(heartbeat(), 3) + b"!", 3)


def test_a_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(MalformedMessageError, match="does not fit"):
        encode_bytes(HeartbeatRequest(group_id="g", generation_id=2**31, member_id="m"), 0)


@pytest.mark.parametrize("count", [2_000_000_000, 17])
def test_a_count_beyond_the_frame_is_refused_before_anything_is_allocated(count: int) -> None:
    # An array length of two billion in a small frame (CVE-2022-34917).
    frame = struct.pack(">iiiib", -1, 0, 0, 100, 0) + struct.pack(">i", count) + bytes(16)
    with pytest.raises(MalformedMessageError, match=f"claims {count} "):
        decode(FetchRequest, frame, 4)


def test_record_bytes_pass_through_uncopied() -> None:
    region = FileRegion(open(__file__, "rb"), 0, 10)  # noqa: SIM115, PTH123 - the region owns it
    data = PartitionData(partition_index=0, error_code=0, high_watermark=5, records=region)
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])
    for version in (4, 12):
        chunks = encode(response, version)
        assert any(chunk is region for chunk in chunks)
    region.file.close()  # type: ignore[attr-defined]


def test_decoded_record_bytes_are_a_view_of_the_frame() -> None:
    data = PartitionData(partition_index=0, error_code=0, high_watermark=5, records=b"batches")
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])
    frame = bytearray(encode_bytes(response, 11))
    records = decode(FetchResponse, frame, 11).responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = encode_bytes(ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3)
    assert plain[-1] == 0
    tagged = plain[:-1] + b"\x02" + b"\x05\x01x" + b"\x90\x01\x00"
    assert decode(ApiVersionsRequest, tagged, 3).client_software_version == "1"


def test_tagged_fields_are_sent_only_where_they_differ_from_the_default() -> None:
    bare = ApiVersionsResponse(error_code=0, api_keys=[])
    full = ApiVersionsResponse(error_code=0, api_keys=[], finalized_features_epoch=7, zk_migration_ready=True)
    assert encode_bytes(bare, 3)[-1] == 0
    assert decode(ApiVersionsResponse, encode_bytes(full, 3), 3) == full


def test_a_tagged_field_longer_than_its_size_is_refused() -> None:
    bare = encode_bytes(ApiVersionsResponse(error_code=0, api_keys=[]), 3)[:-1]
    with pytest.raises(MalformedMessageError):
        decode(ApiVersionsResponse, bare + b"\x01\x01\x02" + bytes(8), 3)


def test_arrays_have_at_most_a_million_entries() -> None:
    def described(count: int) -> bytes:
        return struct.pack(">i", count) + bytes(2 * count)  # names of no letters

    assert len(decode(DescribeGroupsRequest, described(1_000_000), 0).groups) == 1_000_000
    with pytest.raises(MalformedMessageError, match="claims 1000001 entries"):
        decode(DescribeGroupsRequest, described(1_000_001), 0)


def test_a_count_is_compared_with_what_so_many_of_the_smallest_entries_take() -> None:
    with pytest.raises(MalformedMessageError, match=r"claims 100 entries of at least 2 bytes, but only 199"):
        decode(DescribeGroupsRequest, struct.pack(">i", 100) + bytes(199), 0)
