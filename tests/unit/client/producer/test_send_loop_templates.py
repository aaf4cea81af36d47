"""Requests and answers by pattern say what the messages themselves would."""

from __future__ import annotations

import pytest

from barnabas.client.producer.send_loop import PACKED_BYTES_MAX, PATTERNS_MAX, STEADY_SINCE, ProduceTemplates
from barnabas.protocol.codec import decode_response, encode_bytes, response_frame
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

VERSIONS = [5, 8, 9, 12]


def sends(version=12):
    return ProduceTemplates(version, acks=1, timeout_ms=500)


def frame_of(*, topic="t", index=2, base_offset=9, error=0, version=12, **others):
    result = PartitionProduceResponse(index=index, error_code=error, base_offset=base_offset, log_start_offset=0)
    topics = [TopicProduceResponse(name=topic, partition_responses=[result])]
    return b"".join(response_frame(ProduceResponse(responses=topics, **others), version, 1))[4:]


def learn(templates, frame, version=12):
    templates.learn(decode_response(ProduceResponse, version, frame))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_holds_one_batch(version):
    templates = sends(version)
    for records in (b"some", bytes(PACKED_BYTES_MAX)):
        data = [PartitionProduceData(index=3, records=records)]
        topics = [TopicProduceData(name="t", partition_data=data)]
        request = templates.request("t", 3, memoryview(records))
        assert request.cls is ProduceRequest
        assert request.body == encode_bytes(ProduceRequest(acks=1, timeout_ms=500, topic_data=topics), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_like_one_that_was_decoded_are_read(version):
    templates = sends(version)
    request = templates.request("t", 3, b"some")
    frame = frame_of(index=3, base_offset=2**40, version=version)
    assert request.read(frame) is None, "nothing was learnt yet"
    learn(templates, frame_of(version=version), version)
    answer, decoded = request.read(frame), decode_response(ProduceResponse, version, frame)
    (topic,) = decoded.responses
    (result,) = topic.partition_responses
    assert (answer.topic, answer.partition) == (topic.name, result.index)
    for name in ("base_offset", "log_append_time_ms", "error_code"):
        assert getattr(answer, name) == getattr(result, name)


@pytest.mark.parametrize("other", [{"error": 6}, {"topic": "u"}, {"throttle_time_ms": 1}])
def test_other_answers_are_decoded_and_make_no_pattern(other):
    templates = sends()
    request = templates.request("t", 3, b"some")
    learn(templates, frame_of(**other))
    assert request.read(frame_of()) is None
    learn(templates, frame_of())
    assert request.read(frame_of(**other)) is None
    assert request.read(frame_of()) is not None


def test_large_batches_and_old_versions_are_encoded_as_ever():
    assert sends().request("t", 0, bytes(PACKED_BYTES_MAX + 1)) is None
    assert sends(STEADY_SINCE - 1).request("t", 0, b"some") is None


def test_patterns_are_bounded():
    templates = sends()
    for number in range(PATTERNS_MAX):
        assert templates.request(f"t{number}", 0, b"some") is not None
    assert templates.request("more", 0, b"some") is None
    assert templates.request("t0", 0, b"some") is not None
