"""What a follower asks for: in one session, only what has changed, and answers count only for what was asked last."""

from __future__ import annotations

import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.replication.fetch_state import (
    BULK_BYTES,
    BULK_BYTES_MIN,
    BULK_WAIT_MS,
    FIRST_PAUSE_S,
    FetchState,
    Followed,
    Limits,
)

LIMITS = Limits(max_wait_ms=500, min_bytes=1, max_bytes=10_000, partition_max_bytes=1_000, pause_s_max=1.0)
A, B = b"A" * 16, b"B" * 16
SESSION = 7


def followed(topic_id: bytes = A, partition: int = 0, offset: int = 0) -> Followed[str]:
    return Followed("replica", topic_id, partition, leader_epoch=3, fetch_offset=offset)


def named(request: FetchRequest | None) -> list[tuple[bytes, int, int]]:
    assert request is not None
    return [
        (topic.topic_id, part.partition, part.fetch_offset) for topic in request.topics for part in topic.partitions
    ]


def forgotten(request: FetchRequest | None) -> list[tuple[bytes, list[int]]]:
    assert request is not None
    return [(topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data]


def answer(
    *partitions: tuple[bytes, int], session: int = SESSION, error: int = 0, records: bytes = b""
) -> FetchResponse:
    topics = [
        FetchableTopicResponse(
            topic_id=topic_id,
            partitions=[PartitionData(partition_index=number, error_code=0, high_watermark=0, records=records)],
        )
        for topic_id, number in partitions
    ]
    return FetchResponse(session_id=session, error_code=error, responses=topics)


def state(*partitions: Followed[str]) -> FetchState[str]:
    made: FetchState[str] = FetchState(LIMITS)
    for each in partitions:
        made.follow(each)
    return made


def in_session(*partitions: Followed[str]) -> FetchState[str]:
    made = state(*partitions)
    made.next_request(1, 9)
    made.on_response(answer())
    return made


def test_first_request_names_all_and_does_not_wait_and_later_ones_name_what_changed() -> None:
    a, b = followed(A, 0), followed(B, 4, offset=5)
    fetches = state(a, b)
    request = fetches.next_request(1, 9)
    assert request is not None
    assert named(request) == [(A, 0, 0), (B, 4, 5)]
    assert (request.session_id, request.session_epoch, request.max_wait_ms) == (0, 0, 0)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (1, 9)
    assert fetches.next_request(1, 9) is None, "nothing can be said before the session has its number"
    assert fetches.on_response(answer((A, 0))) == [(a, answer((A, 0)).responses[0].partitions[0])]
    fetches.continue_at(a, 10, 3)
    request = fetches.next_request(1, 9)
    assert request is not None
    assert named(request) == [(A, 0, 10)]
    assert (request.session_id, request.session_epoch, request.max_wait_ms) == (SESSION, 1, 500)
    fetches.on_response(answer())
    request = fetches.next_request(1, 9)
    assert named(request) == []
    assert request is not None
    assert request.session_epoch == 2


def test_paused_partition_leaves_the_session_and_comes_back() -> None:
    a, b = followed(A, 0), followed(B, 4)
    fetches = in_session(a, b)
    fetches.pause(a)
    request = fetches.next_request(1, 9)
    assert forgotten(request) == [(A, [0])]
    assert fetches.on_response(answer((A, 0))) == [], "it was asked for earlier only"
    fetches.continue_at(a, 8, 3)
    request = fetches.next_request(1, 9)
    assert (named(request), forgotten(request)) == ([(A, 0, 8)], [])


def test_nothing_is_asked_where_nothing_can_be() -> None:
    a = followed()
    fetches = in_session(a)
    fetches.pause(a)
    assert fetches.next_request(1, 9) is None
    fetches.unfollow(a)
    assert len(fetches) == 0
    assert fetches.next_request(1, 9) is None


def test_trouble_makes_longer_and_longer_pauses() -> None:
    a = followed()
    fetches = in_session(a)
    fetches.pause_after_error(a, now_s=100.0)
    assert fetches.next_due_s() == 100.0 + FIRST_PAUSE_S
    assert fetches.resume_due(100.0) == []
    assert fetches.resume_due(100.0 + FIRST_PAUSE_S) == [a]
    fetches.continue_at(a, 0, -1)
    assert fetches.next_due_s() is None
    for _ in range(10):
        fetches.pause_after_error(a, now_s=200.0)
    assert fetches.next_due_s() == 201.0
    fetches.unfollow(a)
    assert fetches.next_due_s() is None


def test_new_partition_interrupts_the_request_that_waits() -> None:
    a, b = followed(A, 0), followed(B, 4)
    fetches = in_session(a)
    assert fetches.next_request(1, 9) is not None
    assert not fetches.must_interrupt
    fetches.follow(b)
    assert fetches.must_interrupt
    request = fetches.next_request(1, 9)
    assert named(request) == [(B, 4, 0)]
    assert request is not None
    assert request.session_epoch == 2
    fetches.follow(followed(B, 5))
    assert not fetches.must_interrupt
    assert fetches.next_request(1, 9) is None


def test_second_answer_to_the_same_question_is_dropped() -> None:
    a, b = followed(A, 0), followed(B, 4)
    fetches = in_session(a)
    fetches.next_request(1, 9)
    fetches.follow(b)
    fetches.next_request(1, 9)
    assert [each for each, _ in fetches.on_response(answer((A, 0), (B, 4)))] == [a], "B was not asked for then"
    fetches.continue_at(a, 10, 3)
    assert [each for each, _ in fetches.on_response(answer((A, 0), (B, 4)))] == [b], "A is further on by now"
    assert named(fetches.next_request(1, 9)) == [(A, 0, 10)]


def test_another_replica_of_a_partition_takes_the_place_of_the_one_before() -> None:
    old, new = followed(offset=5), followed(offset=3)
    fetches = in_session(old)
    fetches.next_request(1, 9)
    fetches.follow(new)
    fetches.unfollow(old)
    assert fetches.on_response(answer((A, 0))) == []
    assert named(fetches.next_request(1, 9)) == [(A, 0, 3)]
    assert fetches.is_followed(new)


def test_session_begins_anew_after_an_error_or_another_connection() -> None:
    a, b = followed(A, 0), followed(B, 4)
    fetches = in_session(a, b)
    fetches.next_request(1, 9)
    with pytest.raises(ApiError) as raised:
        fetches.on_response(answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    assert raised.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    fetches.pause(b)
    fetches.reset_session()
    request = fetches.next_request(1, 9)
    assert request is not None
    assert (named(request), forgotten(request), request.session_epoch) == ([(A, 0, 0)], [], 0)


def test_answer_for_another_session_is_no_answer_nor_is_one_without() -> None:
    fetches = in_session(followed())
    fetches.next_request(1, 9)
    with pytest.raises(ApiError):
        fetches.on_response(answer(session=SESSION + 1))
    fetches = state(followed())
    fetches.next_request(1, 9)
    with pytest.raises(ApiError):
        fetches.on_response(answer(session=0))


def test_after_much_the_next_answer_may_wait_a_moment_for_more_and_after_little_it_comes_at_once() -> None:
    a, b = followed(A), followed(B)
    fetches = in_session(a, b)
    asked = []
    for size in (BULK_BYTES // 2, BULK_BYTES // 2 - 1, 0):
        for each in (a, b):
            fetches.continue_at(each, 1, 3)
        fetches.next_request(1, 9)
        fetches.on_response(answer((A, 0), (B, 0), records=bytes(size)))
        fetches.continue_at(a, 2, 3)
        request = fetches.next_request(1, 9)
        assert request is not None
        asked.append((request.min_bytes, request.max_wait_ms))
        fetches.on_response(answer())
    usual = (LIMITS.min_bytes, LIMITS.max_wait_ms)
    assert asked == [(BULK_BYTES_MIN, BULK_WAIT_MS), usual, usual]


def test_settings_that_ask_for_more_or_for_a_shorter_wait_hold_after_much_too() -> None:
    fetches: FetchState[str] = FetchState(LIMITS._replace(max_wait_ms=1, min_bytes=2 * BULK_BYTES_MIN))
    a = followed()
    fetches.follow(a)
    fetches.next_request(1, 9)
    fetches.on_response(answer((A, 0), records=bytes(BULK_BYTES)))
    fetches.continue_at(a, 1, 3)
    request = fetches.next_request(1, 9)
    assert request is not None
    assert (request.min_bytes, request.max_wait_ms) == (2 * BULK_BYTES_MIN, 1)
