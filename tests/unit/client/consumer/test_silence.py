"""A consumer without a coordinator hands out nothing once others may own its partitions, though nobody has told it so:
its process was stopped, or its background has not run since."""

from __future__ import annotations

import pytest

from barnabas.client.consumer.call_steps import Join
from barnabas.client.consumer.zookeeper_assignment import SubscriptionSnapshot
from tests.support.consumer_core import TOPIC, Scene, places

UNTIL_S = 4.0


@pytest.fixture
def scene():
    """A consumer that owns both partitions for `UNTIL_S`; three records of each are at hand."""
    scene = Scene(group="g", coordination="zookeeper://z")
    scene.core.subscribe(TOPIC, None, ("lost", "revoked"))
    scene.on_metadata()
    poll = scene.poll(timeout_s=100)
    own(scene, scene.state.next_task())
    scene.settle(poll)
    scene.deliver()
    assert len(scene.settle(poll).result) == 6
    scene.deliver()
    return scene


def own(scene, work):
    assignment = scene.state.membership
    assignment.on_answered(UNTIL_S)
    assignment.begin([TOPIC])
    assignment.on_registered()
    assignment.on_reading()
    assignment.on_read(SubscriptionSnapshot({assignment.consumer_id: [TOPIC]}, {TOPIC: 2}))
    assignment.on_claiming()
    work.partitions = assignment.on_claimed()
    scene.state.finish_task(work)


def lose(scene, call):
    """The call tells the application what was lost, and joins anew."""
    assert call.tells
    assert call.step.change == "lost"
    assert len(call.step.partitions) == 2
    scene.state.on_listener_called(call.step)
    assert scene.settle(call).waits
    assert scene.core.assignment() == set()
    assert isinstance(scene.state.next_task(), Join)


def test_who_knows_that_it_is_heard_reads_on(scene):
    scene.clock.advance(UNTIL_S - 0.1)
    assert len(scene.poll().result) == 6


def test_poll_hands_out_nothing_of_what_may_be_others(scene):
    scene.clock.advance(UNTIL_S)
    lose(scene, scene.poll())


def test_iteration_ends_where_its_time_does_and_skips_nothing_if_it_was_heard_after_all(scene):
    core = scene.core
    iterator = scene.call(core.next_slice(core.cursor)).result
    first = next(iterator)
    scene.clock.advance(UNTIL_S)
    assert next(iterator, None) is None
    assert next(core.cursor.iterator, None) is None
    scene.state.membership.on_answered(2 * UNTIL_S)
    rest = scene.call(core.next_slice(core.cursor)).result
    assert [record.offset for record in (first, *rest)] == [3, 4, 5]


def test_iteration_hands_out_nothing_of_what_may_be_others(scene):
    core = scene.core
    iterator = scene.call(core.next_slice(core.cursor)).result
    next(iterator)
    scene.clock.advance(UNTIL_S)
    assert next(iterator, None) is None
    lose(scene, scene.call(core.next_slice(core.cursor)))


def test_session_lost_in_the_middle_of_an_iteration_ends_it(scene):
    core = scene.core
    iterator = scene.call(core.next_slice(core.cursor)).result
    next(iterator)
    scene.state.membership.on_session_lost("over")
    assert next(iterator, None) is None


def test_nothing_is_committed_on_the_way_out(scene):
    assert places(scene.poll().result)
    scene.clock.advance(UNTIL_S)
    lose(scene, scene.poll())
    assert scene.state.next_task() is None


def test_partitions_assigned_by_hand_are_nobody_elses(scene):
    scene.core._subscription.unsubscribe()
    scene.core.assign([(TOPIC, 0)])
    scene.clock.advance(2 * UNTIL_S)
    scene.deliver()
    core = scene.core
    assert len(list(scene.call(core.next_slice(core.cursor)).result)) == 3
