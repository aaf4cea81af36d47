"""Headers of requests and responses, in the versions that the version of a message asks for."""

from __future__ import annotations

import struct

import pytest

from barnabas.errors import MalformedMessageError
from barnabas.protocol.codec import (
    decode_request,
    decode_response,
    read_correlation_id,
    read_request_header,
    request_frame,
    response_frame,
)
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.metadata import MetadataRequest

REQUEST = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def joined(chunks: list) -> bytes:  # type: ignore[type-arg]
    return b"".join(chunks)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("client_id", ["app", "", None])
def test_request_survives_the_round_trip(version: int, client_id: str | None) -> None:
    frame = joined(request_frame(REQUEST, version, 42, client_id))
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    header = read_request_header(frame[4:])
    assert header[:4] == (12, version, 42, client_id)
    assert decode_request(HeartbeatRequest, header, frame[4:]) == REQUEST


@pytest.mark.parametrize("version", range(5))
def test_response_survives_the_round_trip(version: int) -> None:
    response = HeartbeatResponse(error_code=27)
    frame = joined(response_frame(response, version, 42))[4:]
    assert read_correlation_id(frame) == 42
    assert decode_response(HeartbeatResponse, version, frame) == response


def test_a_flexible_response_has_a_tag_section_in_its_header() -> None:
    plain, flexible = (joined(response_frame(HeartbeatResponse(error_code=0), v, 1)) for v in (3, 4))
    assert len(flexible) == len(plain) + 2  # one tag section of the header, one of the message


def test_the_response_of_api_versions_never_has_one() -> None:
    frame = joined(response_frame(ApiVersionsResponse(error_code=35, api_keys=[]), 3, 7))[4:]
    assert frame[4:6] == b"\x00\x23"
    assert decode_response(ApiVersionsResponse, 3, frame).error_code == 35


def test_tagged_fields_of_the_header_are_skipped() -> None:
    frame = bytearray(joined(request_frame(ApiVersionsRequest(), 3, 1, "c"))[4:])
    position = 2 + 2 + 4 + 2 + 1
    frame[position : position + 1] = b"\x01\x00\x03abc"
    header = read_request_header(frame)
    assert decode_request(ApiVersionsRequest, header, frame) == ApiVersionsRequest()


def test_bytes_behind_a_request_are_ignored() -> None:
    frame = joined(request_frame(REQUEST, 4, 42, "app"))[4:] + b"\x01\x00\x00"
    assert decode_request(HeartbeatRequest, read_request_header(frame), frame) == REQUEST


def test_the_list_of_all_topics_is_understood_as_librdkafka_asks_for_it() -> None:
    frame = bytes.fromhex("0003000c00000003000772646b61666b610000000000010000")
    request = decode_request(MetadataRequest, read_request_header(frame), frame)
    assert request == MetadataRequest(topics=None, allow_auto_topic_creation=False)


@pytest.mark.parametrize("cut", range(1, 19))
def test_a_cut_request_is_refused(cut: int) -> None:
    frame = joined(request_frame(REQUEST, 4, 42, "app"))[4:]
    with pytest.raises(MalformedMessageError):
        decode_request(HeartbeatRequest, read_request_header(frame[:-cut]), frame[:-cut])
