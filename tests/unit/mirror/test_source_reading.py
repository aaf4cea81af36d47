"""Which partitions of the source are asked for, and in which order."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from barnabas.mirror.link import Link
from barnabas.mirror.offset_map import OffsetMap
from barnabas.mirror.partition_copy import PartitionCopy
from barnabas.mirror.source_reading import SourceReading
from barnabas.model import TopicPartition


class Recording:
    """A cluster of one broker that has nothing, and notes which partitions it was asked for."""

    view = SimpleNamespace(leader=lambda _where: 1)

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    async def send(self, _broker: int, request: Any, **_more: Any) -> Any:
        self.asked.append([part.partition for topic in request.topics for part in topic.partitions])
        return SimpleNamespace(responses=[])


def link(partition: int) -> Link:
    where = TopicPartition("clicks", partition)
    copy = PartitionCopy(where, 1)
    copy.place(OffsetMap(0, 0), None, 0.0)
    return Link(where, where, "id", copy)


def test_each_partition_is_the_first_of_a_request_now_and_then() -> None:
    cluster: Any = Recording()
    links = {each.source: each for each in map(link, range(3))}
    reading = SourceReading(cluster, links, lambda: None, lambda _link, _error: None)

    async def rounds() -> None:
        for _ in range(3):
            await reading._round(1)

    asyncio.run(rounds())
    assert sorted(asked[0] for asked in cluster.asked) == [0, 1, 2]
    assert all(sorted(asked) == [0, 1, 2] for asked in cluster.asked)
