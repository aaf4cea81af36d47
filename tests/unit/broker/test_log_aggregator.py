"""What many partitions have to say in common is one line."""

from __future__ import annotations

import asyncio
import logging

import pytest

from barnabas.broker.log_aggregator import LogAggregator
from barnabas.model import TopicPartition


def test_partitions_that_have_the_same_to_say_share_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        together = LogAggregator(logging.getLogger(__name__))
        for number in range(50):
            together.note(logging.INFO, "in sync are to be [1]", TopicPartition("clicks", number))
        together.note(logging.ERROR, "not followed", TopicPartition("views", 7))
        assert caplog.messages == []
        await asyncio.sleep(0)
        together.note(logging.INFO, "in sync are to be [1]", TopicPartition("clicks", 50))
        await asyncio.sleep(0)

    caplog.set_level(logging.INFO)
    asyncio.run(scenario())
    assert caplog.messages == [
        "in sync are to be [1]: clicks-0, clicks-1, clicks-2 and 47 more",
        "not followed: views-7",
        "in sync are to be [1]: clicks-50",
    ]


def test_what_is_said_of_one_alone_stands_behind_its_name(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(*offsets: int) -> None:
        together = LogAggregator(logging.getLogger(__name__))
        for number, offset in enumerate(offsets):
            together.note(logging.INFO, "truncated", TopicPartition("clicks", number), f" to offset {offset}")
        await asyncio.sleep(0)

    caplog.set_level(logging.INFO)
    asyncio.run(scenario(5))
    asyncio.run(scenario(5, 6))
    assert caplog.messages == [
        "truncated: clicks-0 to offset 5",
        "truncated: clicks-0 to offset 5, clicks-1 to offset 6",
    ]
    assert caplog.records[0].args == ("truncated", TopicPartition("clicks", 0), " to offset 5")
