"""Requests that are recognised as repeating another mean what decoding them in full says that they mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import MalformedMessageError
from barnabas.protocol.codec import (
    PATTERN_BYTES_MAX,
    PATTERNS_BYTES_MAX,
    PATTERNS_MAX,
    SHAPES_MAX,
    IntegerRequestTemplate,
    RecordsSpan,
    RequestTemplates,
    constant_response_encoder,
    decode_request,
    read_request_header,
    request_frame,
    response_frame,
    response_template_encoder,
)
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

FIRST_FLEXIBLE = 9

VERSIONS = st.sampled_from([3, 7, 8, 9])
RECORDS = st.binary(max_size=300)


def produce(records: bytes | None, topic: str = "clicks", partition: int = 0, acks: int = 0) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=records)]
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


def frame_of(request: object, version: int, correlation_id: int = 1, client_id: str | None = "me") -> bytearray:
    return bytearray(b"".join(request_frame(request, version, correlation_id, client_id)))[4:]  # type: ignore[arg-type]


def decoded(frame: bytearray, spans: list[RecordsSpan] | None = None) -> ProduceRequest:
    return decode_request(ProduceRequest, read_request_header(frame), frame, spans)


def learnt(*frames: bytearray, version: int) -> RequestTemplates:
    known = RequestTemplates(version, flexible=version >= FIRST_FLEXIBLE)
    for frame in frames:
        spans: list[RecordsSpan] = []
        request = decoded(frame, spans)
        known.learn(frame, spans[0], request)
    return known


def partition_of(request: ProduceRequest) -> Any:
    return request.topic_data[0].partition_data[0]


@given(VERSIONS, RECORDS, RECORDS, st.integers(0, 2**31 - 1))
def test_other_records_and_another_correlation_id_are_recognised(
    version: int, first: bytes, second: bytes, correlation_id: int
) -> None:
    known = learnt(frame_of(produce(first), version), version=version)
    found = known.recognise(frame_of(produce(second), version, correlation_id))
    assert found is not None
    request, records, found_id = found
    assert (bytes(records), found_id) == (second, correlation_id)
    assert bytes(partition_of(request).records) == first


@given(VERSIONS, RECORDS, RECORDS, st.data())
def test_what_is_recognised_is_what_decoding_would_give(
    version: int, first: bytes, second: bytes, data: st.DataObject
) -> None:
    known = learnt(frame_of(produce(first), version), version=version)
    frame = frame_of(produce(second), version)
    for _ in range(data.draw(st.integers(0, 3))):
        position = data.draw(st.integers(0, len(frame) - 1))
        frame[position] = data.draw(st.integers(0, 255))
    cut = frame[: data.draw(st.integers(0, len(frame)))]
    seen = data.draw(st.sampled_from([frame, cut, frame + b"\0", cut + b"\0\0\0"]))
    found = known.recognise(seen)
    if found is None:
        return
    request, records, _ = found
    partition_of(request).records = records
    assert decoded(seen) == request


@pytest.mark.parametrize(
    "other",
    [
        frame_of(produce(b"x", topic="clacks"), 9),
        frame_of(produce(b"x", partition=1), 9),
        frame_of(produce(b"x", acks=1), 9),
        frame_of(produce(b"x"), 9, client_id="you"),
        frame_of(produce(b"x"), 9, client_id=None),
        frame_of(produce(b"x"), 8),
        frame_of(produce(None), 9),
        frame_of(ProduceRequest(acks=0, timeout_ms=1_000, topic_data=[]), 9),
        frame_of(produce(b"x"), 9) + b"behind it",
        bytearray(b""),
        bytearray(b"\0"),
    ],
)
def test_another_request_is_not_recognised(other: bytearray) -> None:
    assert learnt(frame_of(produce(b"x"), 9), version=9).recognise(other) is None


def test_requests_to_several_partitions_and_topics_are_told_apart() -> None:
    requests = [produce(b"a", topic, number) for topic in ("t", "topic") for number in range(3)]
    known = learnt(*(frame_of(request, 9) for request in requests), version=9)
    for request in requests:
        topic = request.topic_data[0].name
        found = known.recognise(frame_of(produce(b"b", topic, partition_of(request).index), 9))
        assert found is not None
        assert (found[0].topic_data[0].name, partition_of(found[0]).index) == (topic, partition_of(request).index)


def test_bytes_behind_the_records_count_too() -> None:
    tagged = frame_of(produce(b"x"), 9)
    tagged[-1:] = b"\1\5\1z"  # a tagged field of the request, with the number 5
    known = learnt(tagged, version=9)
    assert known.recognise(tagged) is not None
    assert known.recognise(frame_of(produce(b"x"), 9)) is None


def test_only_so_many_are_remembered() -> None:
    known = learnt(*(frame_of(produce(b"", number * "t"), 7) for number in range(1, 50)), version=7)
    found = [number for number in range(1, 50) if known.recognise(frame_of(produce(b"r", number * "t"), 7))]
    assert 49 in found
    assert len(found) <= SHAPES_MAX
    known = learnt(*(frame_of(produce(b"", partition=number), 7) for number in range(300)), version=7)
    found = [number for number in range(300) if known.recognise(frame_of(produce(b"r", partition=number), 7))]
    assert 299 in found
    assert len(found) <= PATTERNS_MAX


def test_one_that_is_long_besides_its_records_is_not_remembered() -> None:
    frame = frame_of(produce(b"x", topic="t" * PATTERN_BYTES_MAX), 7)
    assert learnt(frame, version=7).recognise(frame) is None


def test_a_longer_request_that_is_known_does_not_hide_a_shorter_one() -> None:
    shorter = frame_of(produce(b"", topic="t"), 7)
    known = learnt(frame_of(produce(b"", topic="t" * 200), 7), shorter, version=7)
    assert known.recognise(shorter) is not None


def answer(index: int, numbers: tuple[int, int, int]) -> ProduceResponse:
    result = PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=numbers[0],
        log_append_time_ms=numbers[1],
        log_start_offset=numbers[2],
    )
    topic = TopicProduceResponse(name="clicks", topic_id=b"i" * 16, partition_responses=[result])
    return ProduceResponse(responses=[topic])


INT64S = st.integers(-(2**63), 2**63 - 1)


@given(st.integers(3, 13), st.integers(0, 2**31 - 1), st.tuples(INT64S, INT64S, INT64S))
def test_a_packed_answer_is_the_one_that_encoding_gives(
    version: int, correlation_id: int, numbers: tuple[int, int, int]
) -> None:
    pack = response_template_encoder(lambda number: answer(7, (number, number, number)), version)
    encoded = b"".join(response_frame(answer(7, numbers), version, correlation_id))  # type: ignore[arg-type]
    assert pack(correlation_id, *numbers) == encoded


def test_a_damaged_length_is_left_to_the_decoder() -> None:
    frame = frame_of(produce(b"x" * 20), 7)
    known = learnt(frame, version=7)
    for length in (-1, -2, 10**9, 19):
        damaged = bytearray(frame)
        damaged[-24:-20] = length.to_bytes(4, "big", signed=True)
        assert known.recognise(damaged) is None
    with pytest.raises(MalformedMessageError):
        decoded(damaged[:-10])


def commit(offsets: list[int], topic: str = "clicks") -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata="m")
        for number, offset in enumerate(offsets)
    ]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=partitions)]
    return OffsetCommitRequest(group_id="g", member_id="me-1", generation_id_or_member_epoch=3, topics=topics)


INT64S = st.integers(-(2**63), 2**63 - 1)


@given(st.sampled_from([2, 5, 6, 7, 8, 10]), st.lists(INT64S, max_size=4), st.integers(0, 2**31 - 1), st.data())
def test_other_numbers_are_recognised_and_nothing_else_is(
    version: int, offsets: list[int], correlation_id: int, data: st.DataObject
) -> None:
    known = IntegerRequestTemplate(lambda number: commit([number] * len(offsets)), version, "me")
    frame = frame_of(commit(offsets), version, correlation_id)
    assert known.recognise(frame) == (correlation_id, tuple(offsets))
    position = data.draw(st.integers(0, len(frame) - 1))
    frame[position] ^= data.draw(st.integers(1, 255))
    if (found := known.recognise(frame)) is not None:
        assert frame == frame_of(commit(list(found[1])), version, found[0])
    for other in (frame[:-1], frame + b"\0", bytearray(), frame_of(commit([*offsets, 1]), version)):
        assert known.recognise(other) is None


def test_the_same_answer_is_what_encoding_gives() -> None:
    response = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="clicks", partitions=[])])
    for version in (2, 8):
        encoded = b"".join(response_frame(response, version, 77))  # type: ignore[arg-type]
        assert constant_response_encoder(response, version)(77) == encoded


def test_what_a_connection_remembers_is_bounded_in_bytes() -> None:
    names = [f"{number:03}".ljust(900, "x") for number in range(PATTERNS_MAX)]
    frames = [frame_of(produce(b"records", name), 9) for name in names]
    known = learnt(*frames, version=9)
    remembered = [frame for frame in frames if known.recognise(frame)]
    assert remembered == frames[-len(remembered) :]
    assert 0 < sum(map(len, remembered)) <= PATTERNS_BYTES_MAX
