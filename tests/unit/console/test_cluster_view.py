"""A user's view of a cluster."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client.admin.topics import PartitionDescription, TopicDescription
from barnabas.clock import SYSTEM_CLOCK
from barnabas.console import cluster_view
from barnabas.console.cluster_view import ClusterView
from barnabas.model import TopicPartition


def test_pages_do_not_wait_for_brokers_that_never_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_view, "CALL_S_MAX", 0.01)

    async def scenario() -> None:
        view = ClusterView({"bootstrap.servers": "127.0.0.1:1"}, SYSTEM_CLOCK)
        try:
            with pytest.raises(TimeoutError):
                await view.within(asyncio.sleep(600))
        finally:
            await view.close()

    asyncio.run(scenario())


def test_partitions_without_leader_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        view = ClusterView({"bootstrap.servers": "127.0.0.1:1"}, SYSTEM_CLOCK)
        partitions = tuple(PartitionDescription(number, leader, (1,), (1,)) for number, leader in ((0, 1), (1, -1)))

        async def topics() -> dict[str, TopicDescription]:
            return {"clicks": TopicDescription("clicks", "", partitions)}

        monkeypatch.setattr(view, "topics", topics)
        asked = [TopicPartition("clicks", 0), TopicPartition("clicks", 1), TopicPartition("deleted", 0)]
        try:
            assert await view.with_leader(asked) == [TopicPartition("clicks", 0)]
        finally:
            await view.close()

    asyncio.run(scenario())
