"""A fetch session says what has changed, and together with the broker's side it asks for what is wanted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.handlers.fetch import FetchSessions
from barnabas.client.consumer.fetch_connections import FetchSession
from barnabas.errors import ApiError
from barnabas.protocol.messages.fetch import INT32_MAX, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.support.steps import at_once


def request_for(wanted):
    """A request for {(topic, partition): offset}."""
    topics = {}
    for (topic, partition), offset in wanted.items():
        part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=100)
        topics.setdefault(topic, []).append(part)
    return FetchRequest(
        max_wait_ms=1,
        min_bytes=1,
        topics=[FetchTopic(topic=topic, partitions=parts) for topic, parts in topics.items()],
    )


def test_only_what_has_changed_is_said():
    session = FetchSession()
    first = session.incremental_request(request_for({("a", 0): 1, ("a", 1): 1, ("b", 0): 1}))
    assert (first.session_id, first.session_epoch) == (0, 0)
    session.on_response(FetchResponse(session_id=5, responses=[]))
    second = session.incremental_request(request_for({("a", 0): 1, ("a", 1): 2, ("b", 1): 1}))
    assert (second.session_id, second.session_epoch) == (5, 1)
    assert [(topic.topic, [part.partition for part in topic.partitions]) for topic in second.topics] == [
        ("a", [1]),
        ("b", [1]),
    ]
    assert [(gone.topic, gone.partitions) for gone in second.forgotten_topics_data] == [("b", [0])]


def test_one_partition_is_said_anew_without_a_look_at_the_rest_where_the_broker_remembers_it():
    session, wanted = FetchSession(), {("a", 0): 1, ("a", 1): 1, ("b", 0): 1}
    part = FetchPartition(partition=1, fetch_offset=2, partition_max_bytes=100)
    assert session.continue_with("a", part) is None, "there is no session yet"
    session.incremental_request(request_for(wanted))
    session.on_response(FetchResponse(session_id=5, responses=[]))
    assert session.continue_with("a", part) == (5, 1)
    session.on_response(FetchResponse(session_id=5, responses=[]))
    wanted["a", 1] = 2
    assert session.incremental_request(request_for(wanted)).topics == []
    session.reset()
    assert session.continue_with("a", part) is None


def test_a_broker_without_room_is_asked_for_a_session_each_time():
    session = FetchSession()
    for _ in range(3):
        request = session.incremental_request(request_for({("a", 0): 1}))
        assert (request.session_id, request.session_epoch, len(request.topics)) == (0, 0, 1)
        session.on_response(FetchResponse(session_id=0, responses=[]))


def test_epochs_begin_again_with_one():
    session = FetchSession()
    session.incremental_request(request_for({("a", 0): 1}))
    session.on_response(FetchResponse(session_id=5, responses=[]))
    session._epoch = INT32_MAX
    session.on_response(FetchResponse(session_id=5, responses=[]))
    assert session.incremental_request(request_for({("a", 0): 1})).session_epoch == 1


def request_of(session, before, wanted):
    changed = [tp for tp, offset in wanted.items() if before.get(tp) != offset]
    if before.keys() == wanted.keys() and len(changed) == 1:
        topic, partition = changed[0]
        part = FetchPartition(partition=partition, fetch_offset=wanted[changed[0]], partition_max_bytes=100)
        if (said := session.continue_with(topic, part)) is not None:
            topics = [FetchTopic(topic=topic, partitions=[part])]
            return FetchRequest(max_wait_ms=1, min_bytes=1, session_id=said[0], session_epoch=said[1], topics=topics)
    return session.incremental_request(request_for(wanted))


WANTED = st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), st.integers(0, 2), min_size=1)
STEP = st.tuples(WANTED, st.sampled_from(["answered", "answered", "answered", "not sent", "answer lost", "evicted"]))


@given(st.lists(STEP, max_size=12))
def test_the_broker_reads_what_is_wanted_whatever_is_lost(steps):
    session, numbers = FetchSession(), iter(range(100))
    sessions = FetchSessions(10, lambda _: next(numbers))
    before = {}
    for wanted, fate in steps:
        if fate == "evicted":
            sessions = FetchSessions(10, lambda _: next(numbers))
        request = request_of(session, before, wanted)
        before = wanted
        if fate == "not sent":
            session.reset()
            continue
        try:
            plan = at_once(sessions.plan(request, 0.0))
        except ApiError:
            assert fate == "evicted"
            session.reset()
            plan = at_once(sessions.plan(session.incremental_request(request_for(wanted)), 0.0))
        asked = {(where.topic, where.partition): part.fetch_offset for where, part in plan.wanted}
        assert asked == wanted
        if fate == "answer lost":
            session.reset()
        else:
            session.on_response(at_once(plan.respond([])))
