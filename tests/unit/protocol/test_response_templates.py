"""What is packed and read by a pattern is what encoding and decoding would have made of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import MalformedMessageError
from barnabas.protocol.codec import (
    EncodedRequest,
    ResponseTemplate,
    ResponseTemplateWithRecords,
    decode_response,
    encode_bytes,
    request_frame,
    response_frame,
    template_encoder,
    template_encoder_with_records,
)
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

VERSIONS = st.sampled_from([7, 11, 12])
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
RECORDS = st.binary(min_size=1, max_size=300)


def request_with(max_bytes: int, session_id: int, partition: int, offset: int) -> FetchRequest:
    part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=7)
    topics = [FetchTopic(topic="clicks", partitions=[part])]
    return FetchRequest(max_wait_ms=5, min_bytes=1, max_bytes=max_bytes, session_id=session_id, topics=topics)


def answer_with(records: bytes, session_id: int, partition: int, high_watermark: int) -> FetchResponse:
    part = PartitionData(partition_index=partition, error_code=0, high_watermark=high_watermark, records=records)
    return FetchResponse(session_id=session_id, responses=[FetchableTopicResponse(topic="clicks", partitions=[part])])


def frame_of(response: object, version: int, correlation_id: int = 3) -> bytes:
    return b"".join(response_frame(response, version, correlation_id))[4:]  # type: ignore[arg-type]


@given(VERSIONS, st.tuples(INT32, INT32, INT32, INT64))
def test_a_packer_encodes_what_the_codec_would(version: int, numbers: tuple[int, int, int, int]) -> None:
    assert template_encoder(request_with, 4, version)(*numbers) == encode_bytes(request_with(*numbers), version)


def produce_with(records: bytes, partition: int) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=records)]
    return ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name="clicks", partition_data=data)])


def produced_with(index: int, base_offset: int) -> ProduceResponse:
    result = PartitionProduceResponse(index=index, error_code=0, base_offset=base_offset)
    return ProduceResponse(responses=[TopicProduceResponse(name="clicks", partition_responses=[result])])


@given(st.sampled_from([3, 8, 9, 12]), st.binary(max_size=300), INT32)
def test_a_packer_of_records_encodes_what_the_codec_would(version: int, records: bytes, partition: int) -> None:
    packed = template_encoder_with_records(produce_with, 1, version)(memoryview(records), partition)
    assert packed == encode_bytes(produce_with(records, partition), version)


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1])
def test_a_number_that_does_not_fit_is_refused_as_the_codec_does(number: int) -> None:
    fetch, produce = template_encoder(request_with, 4, 12), template_encoder_with_records(produce_with, 1, 12)
    packs: list[Callable[[], bytes]] = [
        lambda: encode_bytes(request_with(0, 0, number, 0), 12),
        lambda: fetch(0, 0, number, 0),
        lambda: encode_bytes(produce_with(b"some", number), 12),
        lambda: produce(b"some", number),
    ]
    for pack in packs:
        with pytest.raises(MalformedMessageError, match="version 12 does not fit"):
            pack()


@given(st.sampled_from([3, 8, 9, 12]), INT32, INT64, st.data())
def test_damaged_numbers_are_refused_or_read_as_the_codec_does(
    version: int, index: int, base_offset: int, data: st.DataObject
) -> None:
    reader = ResponseTemplate(produced_with, 2, version)
    frame = bytearray(frame_of(produced_with(index, base_offset), version))
    found = reader.read(frame)
    assert found is not None
    assert tuple(found) == (index, base_offset)
    frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(frame[: data.draw(st.integers(0, len(frame)))]) + data.draw(st.binary(max_size=3))
    try:
        decoded = decode_response(ProduceResponse, version, cut)
    except MalformedMessageError:
        assert reader.read(cut) is None
        return
    if (found := reader.read(cut)) is not None:
        assert decoded == produced_with(*found)


def test_numbers_in_another_order_than_on_the_wire_are_refused() -> None:
    with pytest.raises(AssertionError, match="another order"):
        template_encoder(lambda offset, partition: request_with(0, 0, partition, offset), 2, 12)


@given(VERSIONS, RECORDS, st.tuples(INT32, INT32, INT64))
def test_an_answer_of_the_pattern_is_read(version: int, records: bytes, numbers: tuple[int, int, int]) -> None:
    found = ResponseTemplateWithRecords(answer_with, 3, version).read(frame_of(answer_with(records, *numbers), version))
    assert found is not None
    assert tuple(found[0]) == numbers
    assert found[1] == records


@given(VERSIONS, RECORDS, st.data())
def test_damaged_answers_are_left_to_the_codec_or_read_as_it_does(
    version: int, records: bytes, data: st.DataObject
) -> None:
    frame = bytearray(frame_of(answer_with(records, 1, 2, 3), version))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] = data.draw(st.integers(0, 255))
    cut = bytes(frame[: data.draw(st.integers(0, len(frame)))]) + data.draw(st.binary(max_size=3))
    found = ResponseTemplateWithRecords(answer_with, 3, version).read(cut)
    try:
        decoded = decode_response(FetchResponse, version, cut)
    except MalformedMessageError:
        assert found is None
        return
    if found is not None:
        (session_id, partition, high_watermark), read = found
        assert decoded == answer_with(read, session_id, partition, high_watermark)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", ["error_code", "topic", "null", "two"])
def test_answers_of_other_patterns_are_not_read(change: str) -> None:
    answer = answer_with(b"records", 1, 2, 3)
    (topic,) = answer.responses
    if change == "error_code":
        topic.partitions[0].error_code = 6
    elif change == "topic":
        topic.topic = "visits"
    elif change == "null":
        topic.partitions[0].records = None
    else:
        topic.partitions *= 2
    assert ResponseTemplateWithRecords(answer_with, 3, 12).read(frame_of(answer, 12)) is None


def test_an_encoded_request_leaves_in_the_same_frame() -> None:
    for version in (0, 4):
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        encoded = EncodedRequest(HeartbeatRequest, encode_bytes(request, version), lambda _frame: None)
        frames = [b"".join(request_frame(each, version, 9, "me")) for each in (request, encoded)]  # type: ignore[arg-type]
        assert frames[0] == frames[1]
