"""Calls of the application, step by step: what they return, what they wait for, and what they must not wait for."""

from __future__ import annotations

import traceback
from dataclasses import replace

import pytest

from barnabas.client.cluster import PartitionView, TopicView
from barnabas.client.consumer.call_steps import FOREVER_S, Commit, Join, Leave, Query
from barnabas.client.consumer.fetched_records import Deserializers
from barnabas.errors import (
    ApiError,
    ClosedError,
    ConfigurationError,
    DeserializationError,
    DisconnectedError,
    ErrorCode,
    TimedOutError,
)
from barnabas.model import OffsetAndMetadata, TimestampType, TopicPartition
from barnabas.records import Record
from tests.support.consumer_core import NODE, TOPIC, Scene, places

ALL = ("assigned", "revoked", "lost")
COOPERATIVE = "cooperative-sticky"


def assigned_scene(**settings):
    scene = Scene(**settings)
    scene.core.assign([(TOPIC, 0)])
    return scene


def group_scene(*listening, **settings):
    scene = Scene(group="g", **settings)
    scene.core.subscribe(TOPIC, None, listening)
    scene.on_metadata()
    return scene


# --- deadlines ------------------------------------------------------------------------------------------


def test_poll_returns_nothing_at_its_deadline():
    scene = assigned_scene()
    poll = scene.poll(timeout_s=2)
    assert poll.step.until_s == 2
    scene.clock.advance(2)
    assert scene.settle(poll).result == []


def test_time_for_which_polls_wait_counts_as_idle_and_that_of_other_calls_does_not():
    scene = assigned_scene(default_api_timeout_ms=5_000)
    position = scene.call(scene.core.position((TOPIC, 0), None))
    scene.clock.advance(5)
    assert isinstance(scene.settle(position).error, TimedOutError)
    assert scene.core.state.metrics.idle_s.total == 0
    poll = scene.poll(timeout_s=2)
    scene.clock.advance(2)
    assert scene.settle(poll).result == []
    assert scene.core.state.metrics.idle_s.total == 2


def test_poll_says_that_no_broker_can_be_reached_when_patience_ends_and_not_when_its_own_time_does():
    scene = assigned_scene(default_api_timeout_ms=5_000)
    poll = scene.poll(timeout_s=12)
    assert poll.step.until_s == 12
    scene.clock.advance(1)
    scene.on_unreachable()
    assert scene.settle(poll).step.until_s == 6
    scene.clock.advance(5)
    assert isinstance(scene.settle(poll).error, DisconnectedError)


def test_poll_without_patience_left_says_so_however_short_it_is():
    scene = assigned_scene(default_api_timeout_ms=5_000)
    scene.on_unreachable()
    scene.clock.advance(4)
    assert scene.poll(timeout_s=0).result == []
    scene.clock.advance(1)
    assert isinstance(scene.poll(timeout_s=0).error, DisconnectedError)


def test_a_broker_that_is_back_ends_the_countdown():
    scene = assigned_scene(default_api_timeout_ms=5_000)
    scene.on_unreachable()
    scene.on_metadata()
    scene.clock.advance(6)
    assert scene.poll(timeout_s=0).result == []


def test_a_member_that_waits_for_its_group_is_told_that_no_broker_can_be_reached():
    scene = Scene(group="g", default_api_timeout_ms=5_000)
    scene.core.subscribe(TOPIC, None, ())
    poll = scene.poll(timeout_s=100)
    scene.on_unreachable()
    scene.clock.advance(5)
    assert isinstance(scene.settle(poll).error, DisconnectedError)


def test_a_position_that_cannot_be_found_out_ends_with_the_time_allowed():
    scene = assigned_scene(default_api_timeout_ms=5_000)
    position = scene.call(scene.core.position((TOPIC, 0), None))
    assert position.step.until_s == 5
    scene.clock.advance(5)
    assert isinstance(scene.settle(position).error, TimedOutError)


# --- news -----------------------------------------------------------------------------------------------


def test_news_between_the_look_and_the_wait_is_not_missed():
    scene = assigned_scene()
    poll = scene.poll(timeout_s=FOREVER_S)
    assert not scene.may_go_on(poll)
    scene.deliver()
    assert scene.may_go_on(poll)
    assert places(scene.settle(poll).result) == [(0, 0), (0, 1), (0, 2)]


def test_what_must_be_told_comes_after_what_is_at_hand():
    scene = assigned_scene()
    scene.deliver(2)
    scene.state.report_error(ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert len(scene.poll().result) == 2
    assert isinstance(scene.poll().error, ApiError)


def test_records_wait_while_their_partition_is_paused():
    scene = assigned_scene()
    scene.deliver()
    scene.core.set_paused([(TOPIC, 0)], True)
    poll = scene.poll()
    assert poll.waits
    scene.core.set_paused([(TOPIC, 0)], False)
    assert len(scene.settle(poll).result) == 3


def test_seeking_from_another_thread_moves_a_poll_that_waits():
    scene = assigned_scene()
    poll = scene.poll()
    scene.core.seek((TOPIC, 0), 7)
    scene.answer(scene.fetch(), 1)
    assert places(scene.settle(poll).result) == [(0, 7)]


# --- failures are values --------------------------------------------------------------------------------


def failing_scenes():
    closed = assigned_scene()
    closed.settle(closed.call(closed.core.close(all_done=True)))
    yield closed
    alone = assigned_scene(default_api_timeout_ms=1_000)
    alone.on_unreachable()
    alone.clock.advance(2)
    yield alone
    fenced = group_scene()
    with pytest.raises(ApiError):
        fenced.state.membership.on_heartbeat(ErrorCode.GROUP_AUTHORIZATION_FAILED, -1)
    fenced.state.membership._fence()
    yield fenced


@pytest.mark.parametrize("number", range(3))
def test_an_error_that_is_raised_again_is_a_fresh_one(number):
    scene = list(failing_scenes())[number]
    errors = [scene.poll(timeout_s=0).error for _ in range(50)]
    assert None not in errors
    assert len({id(error) for error in errors}) == 50
    assert len({len(traceback.extract_tb(error.__traceback__)) for error in errors[1:]}) == 1


# --- the group ------------------------------------------------------------------------------------------


def test_an_eager_member_commits_tells_and_gives_up_before_it_joins():
    scene = group_scene(*ALL)
    scene.join_and_read(0, 1)
    scene.state.membership.rejoin("another member has come")
    poll = scene.poll(timeout_s=100)
    commit = scene.state.next_task()
    assert commit.offsets == {TopicPartition(TOPIC, each): OffsetAndMetadata(3) for each in range(2)}
    assert poll.waits
    scene.state.finish_task(commit)
    assert scene.settle(poll).tells
    assert (poll.step.change, len(poll.step.partitions)) == ("revoked", 2)
    assert scene.state.next_task() is None
    scene.state.on_listener_called(poll.step)
    assert scene.settle(poll).waits
    assert scene.core.assignment() == set()
    scene.join(scene.state.next_task(), [1])
    assert scene.settle(poll).tells
    assert (poll.step.change, poll.step.partitions) == ("assigned", [TopicPartition(TOPIC, 1)])


def test_a_cooperative_member_reads_on_while_it_joins_and_gives_up_what_it_loses():
    scene = group_scene(*ALL, partition_assignment_strategy=COOPERATIVE)
    scene.join_and_read(0, 1)
    scene.state.membership.rejoin("another member has come")
    scene.deliver()
    poll = scene.poll(timeout_s=100)
    scene.state.finish_task(scene.state.next_task())  # the commit
    assert len(scene.settle(poll).result) == 6
    poll = scene.poll(timeout_s=100)
    scene.join(scene.state.next_task(), [1])
    scene.settle(poll)
    scene.state.finish_task(scene.state.next_task())  # the commit of what it gives up
    assert scene.settle(poll).tells
    assert (poll.step.change, poll.step.partitions) == ("revoked", [TopicPartition(TOPIC, 0)])
    scene.state.on_listener_called(poll.step)
    scene.settle(poll)
    assert scene.core.assignment() == {TopicPartition(TOPIC, 1)}
    assert isinstance(scene.state.next_task(), Join)  # once more, so that another can take what was given up


def test_partitions_that_were_lost_are_not_committed():
    scene = group_scene(*ALL)
    scene.join_and_read(0)
    scene.state.membership.on_heartbeat(ErrorCode.ILLEGAL_GENERATION, scene.generation)
    poll = scene.poll()
    assert (poll.step.change, poll.step.partitions) == ("lost", [TopicPartition(TOPIC, 0)])
    scene.state.on_listener_called(poll.step)
    scene.settle(poll)
    assert isinstance(scene.state.next_task(), Join)


def test_another_poll_goes_on_with_what_one_has_begun():
    scene = group_scene("assigned")
    assert scene.poll(timeout_s=0).result == []
    scene.join(scene.state.next_task(), [0])
    poll = scene.poll(timeout_s=0)
    assert poll.tells
    assert scene.state.next_task() is None


def test_nobody_reads_while_the_application_is_told_but_the_listener_itself():
    scene = group_scene("revoked")
    scene.join_and_read(0)
    scene.deliver()
    scene.state.membership.rejoin("another member has come")
    poll = scene.poll()
    scene.state.finish_task(scene.state.next_task())
    assert scene.settle(poll).tells
    assert scene.poll(timeout_s=0).result == []
    nested = scene.call(scene.core.poll(500, 1.0, nested=True))
    assert len(nested.result) == 3


def test_an_error_of_a_listener_comes_out_of_the_poll_and_the_assignment_stands():
    scene = group_scene("assigned")
    poll = scene.poll()
    scene.join(scene.state.next_task(), [0])
    scene.settle(poll)
    wrong = ValueError("a listener's")
    scene.state.on_listener_called(poll.step, wrong)
    assert scene.settle(poll).error is wrong
    assert scene.core.assignment() == {TopicPartition(TOPIC, 0)}
    scene.deliver()
    assert len(scene.poll().result) == 3


def test_a_join_that_fails_is_told_and_tried_again():
    scene = group_scene()
    poll = scene.poll()
    scene.state.finish_task(scene.state.next_task(), ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED))
    assert isinstance(scene.settle(poll).error, ApiError)
    scene.poll(timeout_s=0)
    assert isinstance(scene.state.next_task(), Join)


def test_unsubscribing_ends_a_join_that_is_under_way_and_leaves():
    scene = group_scene()
    scene.poll(timeout_s=0)
    join = scene.state.next_task()
    unsubscribe = scene.call(scene.core.unsubscribe(nested=False))
    assert join.abandoned
    leave = scene.state.next_task()
    assert isinstance(leave, Leave)
    scene.state.finish_task(leave)
    assert scene.settle(unsubscribe).error is None
    assert not scene.state.subscription.by_topics


def test_a_listener_cannot_unsubscribe_for_it_would_wait_for_itself():
    scene = group_scene()
    assert isinstance(scene.call(scene.core.unsubscribe(nested=True)).error, ConfigurationError)


# --- work -----------------------------------------------------------------------------------------------


def test_a_commit_brings_what_was_handed_out_and_waits_for_the_answer():
    scene = group_scene()
    scene.join_and_read(0)
    commit = scene.call(scene.core.commit(None, None))
    work = scene.state.next_task()
    assert work.offsets == {TopicPartition(TOPIC, 0): OffsetAndMetadata(3)}
    refused = ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
    scene.state.finish_task(work, refused)
    assert scene.settle(commit).error is refused


def test_auto_commit_does_not_take_back_what_the_application_has_committed():
    scene = group_scene()
    scene.join_and_read(0)
    commit = scene.call(scene.core.commit(None, None))
    scene.state.finish_task(scene.state.next_task())
    scene.settle(commit)
    assert scene.state.due_auto_commit() is None, "records that are in hand count as dealt with, since it said so"
    scene.core.seek((TOPIC, 0), 1)
    assert offsets_of(scene.state.due_auto_commit()) == [1], "a seek is a word of its own"


def offsets_of(commit):
    return [each.offset for each in commit.offsets.values()]


def test_a_call_that_is_interrupted_abandons_its_work():
    scene = group_scene()
    commit = scene.call(scene.core.commit({(TOPIC, 0): 1}, None))
    commit.steps.close()
    assert scene.state.next_task().abandoned


def test_committed_returns_one_offset_for_a_pair_and_a_dict_for_several():
    scene = group_scene()
    first, second = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
    answers = []
    for asked in ((TOPIC, 0), [TOPIC, 1], [first], iter([first, second]), (first, second), []):
        call = scene.call(scene.core.committed(asked, None))
        work = scene.state.next_task()
        work.answer = {first: OffsetAndMetadata(5)}
        scene.state.finish_task(work)
        answers.append(scene.settle(call).result)
    at_5 = OffsetAndMetadata(5)
    assert answers == [at_5, None, {first: at_5}, {first: at_5, second: None}, {first: at_5, second: None}, {}]
    with pytest.raises(TypeError, match="a partition is a pair"):
        next(scene.core.committed([first, "x"], None))


def test_a_query_brings_its_answer():
    scene = assigned_scene()
    ends = scene.call(scene.core.end_offsets([(TOPIC, 0)]))
    work = scene.state.next_task()
    assert isinstance(work, Query)
    work.answer = {TopicPartition(TOPIC, 0): None}
    scene.state.finish_task(work)
    assert scene.settle(ends).result == {}


# --- the end --------------------------------------------------------------------------------------------


def test_closing_commits_leaves_and_ends_every_call():
    scene = group_scene(*ALL)
    scene.join_and_read(0)
    poll = scene.poll(timeout_s=FOREVER_S)
    close = scene.call(scene.core.close(all_done=True))
    assert isinstance(scene.settle(poll).error, ClosedError)
    commit = scene.state.next_task()
    assert isinstance(commit, Commit)
    scene.state.finish_task(commit, ApiError(ErrorCode.NOT_COORDINATOR))
    scene.settle(close)
    leave = scene.state.next_task()
    assert isinstance(leave, Leave)
    scene.state.finish_task(leave)
    assert scene.settle(close).ended
    assert close.error is None
    assert scene.call(scene.core.close(all_done=True)).ended


def test_closing_gives_up_the_last_commit_at_the_deadline():
    scene = group_scene(*ALL)
    scene.join_and_read(0)
    close = scene.call(scene.core.close(all_done=True, deadline_s=scene.clock.monotonic() + 2))
    commit = scene.state.next_task()
    assert isinstance(commit, Commit)
    assert not scene.settle(close).ended
    scene.clock.advance(2)
    error = scene.settle(close).error
    assert isinstance(error, TimedOutError)
    assert "before the consumer could commit its last offsets" in str(error)
    assert commit.abandoned
    assert scene.state.next_task() is None


def test_closing_without_time_still_closes_the_consumer():
    scene = group_scene()
    close = scene.call(scene.core.close(all_done=True, deadline_s=scene.clock.monotonic()))
    assert "before the consumer could leave its group" in str(close.error)
    assert scene.core.closed
    assert isinstance(scene.poll().error, ClosedError)


def test_closing_in_the_middle_of_a_rebalance_ends_that():
    scene = group_scene()
    poll = scene.poll(timeout_s=FOREVER_S)
    join = scene.state.next_task()
    scene.call(scene.core.close(all_done=True))
    assert join.abandoned
    assert isinstance(scene.settle(poll).error, ClosedError)


def test_a_poll_does_not_join_again_when_its_consumer_was_closed_meanwhile():
    scene = group_scene()
    poll = scene.poll(timeout_s=FOREVER_S)
    join = scene.state.next_task()
    close = scene.call(scene.core.close(all_done=True))
    scene.state.finish_task(join, ApiError(ErrorCode.UNKNOWN_MEMBER_ID))
    assert isinstance(scene.settle(poll).error, ClosedError)
    leave = scene.state.next_task()
    assert isinstance(leave, Leave)
    scene.state.finish_task(leave)
    assert scene.settle(close).ended
    assert scene.state.next_task() is None


def test_work_that_comes_after_the_end_of_the_background_keeps_nobody_waiting():
    scene = group_scene()
    before = scene.call(scene.core.commit({(TOPIC, 0): 1}, None))
    scene.state.end_tasks()
    assert isinstance(scene.settle(before).error, ClosedError)
    assert isinstance(scene.call(scene.core.commit({(TOPIC, 0): 1}, None)).error, ClosedError)


# --- keys and values as objects -------------------------------------------------------------------------


def number_of(value):
    """Refuses the record at offset 2."""
    number = int(value.split(b"/")[1])
    if number == 2:
        raise ValueError("not this one")
    return number


def deserializing_scene():
    scene = Scene(value_deserializer=number_of)
    scene.core.assign([(TOPIC, 0)])
    return scene


def deliver_again(scene):
    fetch = scene.fetch()
    if fetch is not None:
        scene.answer(fetch, 3)


def test_values_are_what_the_deserializer_makes_of_them():
    scene = deserializing_scene()
    scene.deliver(2)
    records = scene.poll().result
    assert [(record.topic, record.offset, record.key, record.value) for record in records] == [
        (TOPIC, 0, None, 0),
        (TOPIC, 1, None, 1),
    ]


def test_a_value_that_is_refused_is_told_after_those_before_it_and_again_until_it_is_passed():
    scene = deserializing_scene()
    scene.deliver(5)
    assert [record.value for record in scene.poll().result] == [0, 1]
    for _ in range(2):
        deliver_again(scene)
        error = scene.poll(timeout_s=0).error
        assert isinstance(error, DeserializationError)
        assert (error.topic, error.partition, error.offset) == (TOPIC, 0, 2)
        assert isinstance(error.__cause__, ValueError)
        assert scene.call(scene.core.position((TOPIC, 0), None)).result == 2
    scene.core.seek((TOPIC, 0), 3)
    deliver_again(scene)
    assert [record.value for record in scene.poll().result] == [3, 4, 5]


def test_an_iteration_stops_before_what_is_refused_as_well():
    scene = deserializing_scene()
    scene.deliver(5)
    stretch = scene.call(scene.core.next_slice(scene.core.cursor)).result
    assert [record.value for record in stretch] == [0, 1]
    deliver_again(scene)
    assert isinstance(scene.call(scene.core.next_slice(scene.core.cursor)).error, DeserializationError)


def test_an_interruption_while_records_are_decoded_makes_no_gap():
    interruptions = [KeyboardInterrupt()]

    def interrupted_once(value):
        if interruptions and value == b"0/1":
            raise interruptions.pop()
        return value

    scene = Scene(value_deserializer=interrupted_once)
    scene.core.assign([(TOPIC, 0)])
    scene.deliver(3)
    with pytest.raises(KeyboardInterrupt):
        scene.poll()
    deliver_again(scene)
    assert [record.offset for record in scene.poll().result] == [0, 1, 2]


def test_what_is_none_is_not_deserialized():
    made, refused = Deserializers(number_of, number_of).apply(
        [Record(TOPIC, 0, 0, 0, TimestampType.CREATE_TIME, None, None, ())]
    )
    assert (made[0].key, made[0].value, refused) == (None, None, None)


# --- figures --------------------------------------------------------------------------------------------


def test_metrics_say_what_came_and_what_is_still_to_come():
    scene = assigned_scene()
    scene.deliver(3)
    figures = scene.core.metrics()
    assert (figures["records_total"], figures["lag"]) == (0, {TopicPartition(TOPIC, 0): 3})
    assert figures["buffered_bytes"] > 0
    scene.poll()
    scene.clock.advance(2)
    figures = scene.core.metrics()
    assert (figures["records_total"], figures["records_per_s"], figures["lag_max"]) == (3, 1.5, 0)
    assert (figures["bytes_total"] > 0, figures["buffered_bytes"]) == (True, 0)


# --- arguments ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topics", [5, [5], b"clicks", [b"clicks"], None, [("clicks", 0)]])
def test_topics_that_are_no_names_are_refused_at_once(topics):
    with pytest.raises(TypeError, match="name"):
        Scene().core.subscribe(topics, None, ())


@pytest.mark.parametrize("partitions", ["clicks", ["clicks"], [("clicks", "0")], [(0, "clicks")], 7, [("clicks",)]])
def test_partitions_that_are_no_pairs_are_refused_at_once(partitions):
    with pytest.raises(TypeError, match=r"\('clicks', 0\)"):
        Scene().core.assign(partitions)


@pytest.mark.parametrize("call", ["seek", "position", "pause"])
def test_a_partition_is_checked_wherever_one_is_given(call):
    core = assigned_scene().core
    calls = {
        "seek": lambda: core.seek("t", 3),
        "position": lambda: next(core.position("t", None)),
        "pause": lambda: core.set_paused(["t"], True),
    }
    with pytest.raises(TypeError, match="pair of topic and number"):
        calls[call]()


@pytest.mark.parametrize(("offset", "error"), [("7", TypeError), (7.0, TypeError), (-1, ConfigurationError)])
def test_an_offset_is_a_whole_number(offset, error):
    with pytest.raises(error, match="offset"):
        assigned_scene().core.seek((TOPIC, 0), offset)


@pytest.mark.parametrize("offsets", [[("t", 0)], {"t": 3}, {("t", 0): "3"}])
def test_offsets_to_commit_are_checked(offsets):
    assert isinstance(Scene(group="g").call(group_scene().core.commit(offsets, None)).error, TypeError)


def test_a_pattern_is_a_regular_expression():
    with pytest.raises(TypeError, match="pattern"):
        Scene().core.subscribe((), 5, ())


def test_reading_without_a_subscription_says_what_to_call():
    scene = Scene()
    with pytest.raises(ConfigurationError, match="subscribe"):
        scene.core.check_readable()
    scene.core.assign([])
    scene.core.check_readable()


def test_that_it_is_closed_is_what_a_consumer_says_first():
    scene = Scene()
    scene.settle(scene.call(scene.core.close(all_done=True)))
    scene.core.check_readable()
    assert isinstance(scene.poll().error, ClosedError)


def scene_that_has_read() -> Scene:
    """Return a scene whose consumer has no group, and has returned three records of each partition."""
    scene = Scene(auto_offset_reset="latest")
    scene.core.subscribe(TOPIC, None, ())
    scene.on_metadata()
    poll = scene.poll()
    scene.deliver()
    assert len(scene.settle(poll).result) == 6
    return scene


def refuse_to_describe(scene: Scene) -> None:
    refused = TopicView(TOPIC, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    scene.view = replace(scene.view, topics={**scene.view.topics, TOPIC: refused})
    scene.on_metadata()
    assert isinstance(scene.poll().error, ApiError)
    assert scene.poll().waits


def test_consumer_without_a_group_keeps_its_positions_while_it_may_not_describe_the_topic():
    scene = scene_that_has_read()
    allowed = scene.view
    refuse_to_describe(scene)
    assert scene.fetch() is None
    scene.view = allowed
    scene.on_metadata()
    assert scene.poll().waits
    assert not scene.state.missing_positions()
    assert set(scene.state.positions().values()) == {3}


def test_consumer_without_a_group_gives_up_the_partitions_of_a_topic_that_is_gone():
    scene = scene_that_has_read()
    scene.view = replace(scene.view, topics={TOPIC: TopicView(TOPIC, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)})
    scene.on_metadata()
    scene.poll()
    assert scene.state.positions() == {}


def test_consumer_without_a_group_gives_up_a_topic_that_was_deleted_while_it_was_refused():
    scene = scene_that_has_read()
    before = scene.view
    refuse_to_describe(scene)
    scene.view = replace(before, topics={TOPIC: TopicView(TOPIC, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)})
    scene.on_metadata()
    scene.poll()
    assert scene.state.positions() == {}
    scene.view = before
    scene.on_metadata()
    scene.poll()
    assert set(scene.state.positions().values()) == {None}


def test_refused_topic_without_positions_does_not_delay_the_positions_of_others():
    scene = Scene()
    scene.core.subscribe((TOPIC, "other"), None, ())
    other = TopicView("other", partitions=(PartitionView(0, NODE),))
    scene.view = before = replace(scene.view, topics={**scene.view.topics, "other": other})
    scene.on_metadata()
    scene.poll()
    refuse_to_describe(scene)
    assert [state.tp for state in scene.state.missing_positions()] == [TopicPartition("other", 0)]
    scene.place_all()
    assert not scene.state.subscription.wants_positions
    scene.view = before
    scene.on_metadata()
    scene.poll()
    assert {state.tp.topic for state in scene.state.missing_positions()} == {TOPIC}
