"""Frames packed after a pattern are the frames that the protocol's own encoder makes; answers are read in bulk."""

from __future__ import annotations

import pytest

from barnabas.errors import ApiError, ErrorCode, MalformedMessageError
from barnabas.laboratory.perf.produce_frames import AnswerReader, FramePattern
from barnabas.protocol.codec import request_frame, response_frame
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

TOPIC = "clicks-ż"
BATCH = bytes(range(256)) * 3


def joined(chunks) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)


@pytest.mark.parametrize("version", range(3, 9))
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_frame_is_that_of_the_protocol(version: int, acks: int) -> None:
    pattern = FramePattern(TOPIC, 5, acks=acks, timeout_ms=1_234, version=version, client_id="perf")
    part = PartitionProduceData(index=5, records=BATCH)
    request = ProduceRequest(
        acks=acks, timeout_ms=1_234, topic_data=[TopicProduceData(name=TOPIC, partition_data=[part])]
    )
    assert pattern.head(77, len(BATCH)) + BATCH == joined(request_frame(request, version, 77, "perf"))


def answer(version: int, correlation_id: int, code: int = 0, message: str | None = None) -> bytes:
    part = PartitionProduceResponse(index=5, error_code=code, base_offset=9, log_append_time_ms=-1, log_start_offset=0)
    if version >= 8:
        part.error_message = message
    response = ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partition_responses=[part])])
    return joined(response_frame(response, version, correlation_id))


@pytest.mark.parametrize("version", range(3, 9))
@pytest.mark.parametrize("piece_bytes", [1, 7, 1_000_000])
def test_answers_are_counted_whatever_pieces_they_come_in(version: int, piece_bytes: int) -> None:
    reader = AnswerReader(TOPIC, version)
    data = b"".join(answer(version, number) for number in range(1, 101))
    for start in range(0, len(data), piece_bytes):
        reader.feed(data[start : start + piece_bytes])
    assert reader.answered == 100


def test_refusal_is_an_error_that_names_the_partition_and_says_why() -> None:
    reader = AnswerReader(TOPIC, 8)
    with pytest.raises(ApiError, match="clicks-ż-5: too large") as raised:
        reader.feed(answer(8, 1) + answer(8, 2, ErrorCode.MESSAGE_TOO_LARGE, "too large"))
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_answer_that_is_not_due_is_an_error() -> None:
    with pytest.raises(MalformedMessageError, match="unexpected response"):
        AnswerReader(TOPIC, 7).feed(answer(7, 1) + answer(7, 3))


def test_what_is_no_answer_is_an_error() -> None:
    with pytest.raises((MalformedMessageError, ApiError)):
        AnswerReader(TOPIC, 7).feed(b"\0\0\0\x08" + b"\0\0\0\1" + b"\xff" * 4)
