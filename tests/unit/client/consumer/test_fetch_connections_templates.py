"""Requests and answers by pattern say what the messages themselves would."""

from __future__ import annotations

import pytest

from barnabas.client.consumer.fetch_connections import PATTERNS_MAX, FetchTemplates
from barnabas.protocol.codec import decode_response, encode_bytes, response_frame
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

WHOLE = FetchRequest(max_wait_ms=500, min_bytes=3, max_bytes=1_000, topics=[], rack_id="here")


def part_at(offset, partition=2):
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=100)


def frame_of(records=b"some", *, topic="t", partition=2, high_watermark=9, error=0, aborted=None, version=12, **others):
    part = PartitionData(
        partition_index=partition,
        error_code=error,
        high_watermark=high_watermark,
        last_stable_offset=8,
        log_start_offset=1,
        aborted_transactions=aborted,
        records=records,
    )
    topics = [FetchableTopicResponse(topic=topic, partitions=[part])]
    return b"".join(response_frame(FetchResponse(session_id=5, responses=topics, **others), version, 1))[4:]


def learnt(*frames, version=12):
    steady = FetchTemplates(version)
    for frame in frames:
        steady.learn(decode_response(FetchResponse, version, frame))
    return steady


@pytest.mark.parametrize("version", [7, 11, 12])
def test_a_request_says_one_partition(version):
    steady = FetchTemplates(version)
    whole = WHOLE if version >= 11 else FetchRequest(max_wait_ms=500, min_bytes=3, max_bytes=1_000, topics=[])
    for offset, topic in ((5, "t"), (2**40, "t"), (1, "u")):
        said = FetchRequest(
            max_wait_ms=500,
            min_bytes=3,
            max_bytes=1_000,
            session_id=7,
            session_epoch=8,
            topics=[FetchTopic(topic=topic, partitions=[part_at(offset)])],
            rack_id=whole.rack_id,
        )
        request = steady.request(whole, 7, 8, topic, part_at(offset))
        assert request.cls is FetchRequest
        assert request.body == encode_bytes(said, version)


@pytest.mark.parametrize("version", [7, 11, 12])
def test_answers_like_one_that_was_decoded_are_read(version):
    steady = learnt(frame_of(version=version), version=version)
    frame = frame_of(b"others", partition=4, high_watermark=2**40, version=version)
    answer, decoded = steady.read(frame), decode_response(FetchResponse, version, frame)
    (topic,) = decoded.responses
    (part,) = topic.partitions
    assert (answer.session_id, answer.topic, answer.error_code) == (decoded.session_id, topic.topic, 0)
    for name in ("partition_index", "high_watermark", "records", "error_code", "preferred_read_replica"):
        assert getattr(answer, name) == getattr(part, name)


def test_nothing_is_read_before_something_was_learnt():
    assert FetchTemplates(12).read(frame_of()) is None


@pytest.mark.parametrize("other", [{"error": 6}, {"records": None}, {"topic": "u"}, {"throttle_time_ms": 1}])
def test_other_answers_are_decoded(other):
    assert learnt(frame_of()).read(frame_of(**other)) is None


UNUSUAL = (
    {"error": 6},
    {"records": None},
    {"throttle_time_ms": 1},
    {"error_code": 70},
    {"aborted": [AbortedTransaction(producer_id=1, first_offset=2)]},
)


@pytest.mark.parametrize("other", UNUSUAL)
def test_unusual_answers_are_no_pattern(other):
    steady = learnt(frame_of(**other))
    assert steady.read(frame_of()) is None
    assert steady.read(frame_of(**other)) is None


@pytest.mark.parametrize("version", [7, 11, 12])
def test_answers_about_several_topics_are_read_in_any_order(version):
    topics = ["t", "u", "long" * 60]
    steady = learnt(*(frame_of(topic=topic, version=version) for topic in topics), version=version)
    for topic in (*topics, *topics):
        assert steady.read(frame_of(topic=topic, version=version)).topic == topic


@pytest.mark.parametrize("version", [7, 11, 12])
def test_after_two_topics_a_frame_that_is_cut_or_about_no_topic_is_decoded(version):
    steady = learnt(frame_of(version=version), frame_of(topic="u", version=version), version=version)
    frame = frame_of(version=version)
    for size in range(len(frame)):
        assert steady.read(frame[:size]) is None
    nothing = FetchResponse(session_id=5, responses=[])
    assert steady.read(b"".join(response_frame(nothing, version, 1))[4:]) is None


def test_patterns_are_bounded():
    steady = learnt(*(frame_of(topic=f"t{number}") for number in range(PATTERNS_MAX + 1)))
    assert steady.read(frame_of(topic=f"t{PATTERNS_MAX - 1}")) is not None
    for number in range(PATTERNS_MAX):
        assert steady.request(WHOLE, 1, 1, f"t{number}", part_at(0)) is not None
    assert steady.request(WHOLE, 1, 1, "more", part_at(0)) is None
    assert steady.request(WHOLE, 1, 1, "t0", part_at(0)) is not None
