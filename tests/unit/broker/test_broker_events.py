"""Events reach the subscribers of their class, in the order of subscription."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.broker_events import ElectionPostponed, Events, LeadershipChanged, TopicsDeleted
from barnabas.errors import ApiError, ErrorCode

DELETED = TopicsDeleted({b"id"}, {"clicks"})


def test_events_reach_the_subscribers_of_their_class_in_order() -> None:
    events = Events()
    received: list[tuple[str, object]] = []
    events.subscribe(LeadershipChanged, lambda event: received.append(("first", event)))
    events.subscribe(ElectionPostponed, lambda event: received.append(("other", event)))
    events.subscribe(LeadershipChanged, lambda event: received.append(("second", event)))
    events.publish(LeadershipChanged())
    assert received == [("first", LeadershipChanged()), ("second", LeadershipChanged())]
    events.publish(DELETED)
    assert len(received) == 2


def test_delivery_waits_for_subscribers_and_passes_on_their_error() -> None:
    async def scenario() -> None:
        events = Events()
        received: list[TopicsDeleted] = []

        async def receive(event: TopicsDeleted) -> None:
            await asyncio.sleep(0)
            received.append(event)

        async def refuse(_event: TopicsDeleted) -> None:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "wait")

        events.subscribe(TopicsDeleted, receive)
        await events.deliver(DELETED)
        assert received == [DELETED]
        events.subscribe(TopicsDeleted, refuse)
        with pytest.raises(ApiError, match="wait"):
            await events.deliver(DELETED)

    asyncio.run(scenario())
