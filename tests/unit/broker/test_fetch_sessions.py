"""Fetch sessions (KIP-227): what a request may leave out, and what an answer leaves out."""

from __future__ import annotations

import itertools
import sys

import pytest

from barnabas.broker.handlers.fetch import EVICTION_S, FetchKey, FetchPlan, FetchSessions
from barnabas.errors import ApiError, ErrorCode
from barnabas.protocol.declare import ZERO_UUID
from barnabas.protocol.messages.fetch import (
    INT32_MAX,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tests.support.steps import at_once

ids = itertools.count(100)


def sessions(slots: int = 10) -> FetchSessions:
    return FetchSessions(slots, lambda _: next(ids))


def request(session_id: int, epoch: int, wanted: dict[int, int], forgotten: tuple[int, ...] = ()) -> FetchRequest:
    """Ask for partitions of the topic `t`, each from an offset."""
    partitions = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1)
        for number, offset in wanted.items()
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=partitions)] if partitions else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forgotten))] if forgotten else [],
    )


def data(number: int, records: bytes = b"", high_watermark: int = 0, error: int = 0) -> tuple[FetchKey, PartitionData]:
    where = FetchKey("t", ZERO_UUID, number)
    return where, PartitionData(
        partition_index=number, error_code=error, high_watermark=high_watermark, records=records
    )


def numbers(response: FetchResponse) -> list[int]:
    return [each.partition_index for topic in response.responses for each in topic.partitions]


def offsets(plan: FetchPlan) -> dict[int, int]:
    return {where.partition: wanted.fetch_offset for where, wanted in plan.wanted}


def test_a_request_without_session_is_answered_in_full() -> None:
    plan = at_once(sessions().plan(request(0, -1, {0: 5, 1: 6}), 0.0))
    response = at_once(plan.respond([data(0), data(1)]))
    assert (response.session_id, numbers(response)) == (0, [0, 1])


def test_a_new_session_answers_in_full_and_later_only_with_news() -> None:
    cache = sessions()
    first = at_once(at_once(cache.plan(request(0, 0, {0: 0, 1: 0, 2: 0}), 0.0)).respond([data(0), data(1), data(2)]))
    assert first.session_id > 0
    assert numbers(first) == [0, 1, 2]
    plan = at_once(cache.plan(request(first.session_id, 1, {}), 1.0))
    assert offsets(plan) == {0: 0, 1: 0, 2: 0}
    later = at_once(plan.respond([data(0), data(1, b"records", 1), data(2)]))
    assert (later.session_id, numbers(later)) == (first.session_id, [1])


def test_what_brought_records_is_asked_last_the_next_time() -> None:
    cache = sessions()
    session = at_once(
        at_once(cache.plan(request(0, 0, {0: 0, 1: 0}), 0.0)).respond([data(0, b"r", 1), data(1)])
    ).session_id
    assert list(offsets(at_once(cache.plan(request(session, 1, {0: 1}), 0.0)))) == [1, 0]


def test_a_changed_high_watermark_is_news_and_an_error_is_told_until_it_passes() -> None:
    cache = sessions()
    session = at_once(at_once(cache.plan(request(0, 0, {0: 0, 1: 0}), 0.0)).respond([data(0), data(1)])).session_id
    told = []
    for epoch, error in ((1, 3), (2, 3), (3, 0), (4, 0)):
        plan = at_once(cache.plan(request(session, epoch, {}), 0.0))
        told.append(numbers(at_once(plan.respond([data(0, high_watermark=7), data(1, error=error)]))))
    assert told == [[0, 1], [1], [1], []]


def test_partitions_are_changed_added_and_forgotten() -> None:
    cache = sessions()
    session = at_once(at_once(cache.plan(request(0, 0, {0: 0, 1: 0}), 0.0)).respond([data(0), data(1)])).session_id
    assert offsets(at_once(cache.plan(request(session, 1, {0: 9, 2: 4}, forgotten=(1,)), 0.0))) == {0: 9, 2: 4}


def test_a_session_without_partitions_ends() -> None:
    cache = sessions()
    session = at_once(at_once(cache.plan(request(0, 0, {0: 0}), 0.0)).respond([data(0)])).session_id
    assert at_once(at_once(cache.plan(request(session, 1, {}, forgotten=(0,)), 0.0)).respond([])).session_id == 0
    assert len(cache) == 0


def test_an_unknown_session_and_a_wrong_epoch_are_refused() -> None:
    cache = sessions()
    session = at_once(at_once(cache.plan(request(0, 0, {0: 0}), 0.0)).respond([data(0)])).session_id
    for session_id, epoch, code in (
        (session + 1, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (session, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ):
        with pytest.raises(ApiError) as caught:
            at_once(cache.plan(request(session_id, epoch, {}), 0.0))
        assert caught.value.code is code
    assert offsets(at_once(cache.plan(request(session, 1, {}), 0.0))) == {0: 0}, (
        "a wrong epoch does not use the right one up"
    )


def test_a_session_is_closed_or_replaced_by_its_reader() -> None:
    cache = sessions()
    session = at_once(at_once(cache.plan(request(0, 0, {0: 0}), 0.0)).respond([data(0)])).session_id
    replaced = at_once(at_once(cache.plan(request(session, 0, {0: 0}), 0.0)).respond([data(0)])).session_id
    assert (len(cache), replaced != session) == (1, True)
    closed = at_once(at_once(cache.plan(request(replaced, -1, {0: 0}), 0.0)).respond([data(0)]))
    assert (len(cache), closed.session_id, numbers(closed)) == (0, 0, [0])


def test_epochs_begin_again_after_the_last() -> None:
    cache = sessions()
    session = at_once(at_once(cache.plan(request(0, 0, {0: 0}), 0.0)).respond([data(0)])).session_id
    cache._sessions[session].next_epoch = INT32_MAX
    at_once(cache.plan(request(session, INT32_MAX, {}), 0.0))
    assert offsets(at_once(cache.plan(request(session, 1, {}), 0.0))) == {0: 0}


def test_a_full_cache_gives_the_room_of_a_session_that_is_not_used() -> None:
    cache = sessions(slots=2)
    old = at_once(at_once(cache.plan(request(0, 0, {0: 0}), 0.0)).respond([data(0)])).session_id
    used = at_once(at_once(cache.plan(request(0, 0, {0: 0}), 0.0)).respond([data(0)])).session_id
    assert at_once(at_once(cache.plan(request(0, 0, {0: 0}), 1.0)).respond([data(0)])).session_id == 0, "no room yet"
    at_once(cache.plan(request(old, 1, {}), EVICTION_S))
    assert at_once(at_once(cache.plan(request(0, 0, {0: 0}), EVICTION_S)).respond([data(0)])).session_id > 0
    with pytest.raises(ApiError):
        at_once(cache.plan(request(used, 1, {}), EVICTION_S))
    assert offsets(at_once(cache.plan(request(old, 2, {}), EVICTION_S))) == {0: 0}


def test_topics_are_named_by_id_or_by_name_within_a_session() -> None:
    cache = sessions()
    session = at_once(at_once(cache.plan(request(0, 0, {0: 0}), 0.0)).respond([data(0)])).session_id
    by_id = request(session, 1, {1: 0})
    by_id.topics[0].topic, by_id.topics[0].topic_id = "", bytes(range(16))
    with pytest.raises(ApiError) as caught:
        at_once(cache.plan(by_id, 0.0))
    assert caught.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_sessions_that_follow_too_much_in_all_are_not_opened_and_do_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[FetchSessions.__module__], "PARTITIONS_MAX", 3)
    cache = sessions()
    session = at_once(at_once(cache.plan(request(0, 0, {0: 0, 1: 0}), 0.0)).respond([data(0), data(1)])).session_id
    assert at_once(at_once(cache.plan(request(0, 0, {0: 0, 1: 0}), 0.0)).respond([data(0), data(1)])).session_id == 0
    assert offsets(at_once(cache.plan(request(session, 1, {2: 0}), 0.0))) == {0: 0, 1: 0, 2: 0}
    with pytest.raises(ApiError) as caught:
        at_once(cache.plan(request(session, 2, {3: 0}), 0.0))
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 0


def test_session_keeps_no_name_that_is_too_long_for_a_topic() -> None:
    cache = sessions()
    long_name = request(0, 0, {0: 0})
    long_name.topics[0].topic = "x" * 250
    plan = at_once(cache.plan(long_name, 0.0))
    assert (plan.session, len(plan.wanted), len(cache)) == (None, 1, 0)
    opened = at_once(at_once(cache.plan(request(0, 0, {0: 0}), 0.0)).respond([data(0)]))
    long_name.session_id, long_name.session_epoch = opened.session_id, 1
    with pytest.raises(ApiError) as refused:
        at_once(cache.plan(long_name, 1.0))
    assert (refused.value.code, len(cache)) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
