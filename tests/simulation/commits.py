"""What clients committed, and whether a group tells it ever after: seen where requests leave, and answers come in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from barnabas.client.cluster import Cluster
from barnabas.model import TopicPartition
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest

Where = tuple[str, TopicPartition]
"""A group, and a partition."""


class CommitLedger:
    """Knows of all commits of all groups how they ended.

    A commit of which nobody knows may take effect at any time while its request is on its way, so a group may be where
    such a commit left it. It must never be where an earlier one left it that was followed by one that was acknowledged.

    :param say: told what is broken.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.acknowledged: dict[Where, int] = {}
        self._unknown: dict[Where, list[int]] = defaultdict(list)
        self._tried: dict[Where, set[int]] = defaultdict(set)

    def begin(self, where: Where, offset: int) -> None:
        """A request goes out that commits an offset."""
        self._unknown[where].append(offset)
        self._tried[where].add(offset)

    def acknowledge(self, where: Where, offset: int) -> None:
        """Its answer has come."""
        self._unknown[where].remove(offset)
        self.acknowledged[where] = max(offset, self.acknowledged.get(where, -1))

    def fetched(self, where: Where, offset: int, floor: int) -> None:
        """A group was asked where it is.

        :param floor: what had been acknowledged when it was asked.
        """
        floor = min(floor, self.acknowledged.get(where, -1))
        if offset >= 0 and offset not in self._tried[where]:
            self._say(f"{where}: offset {offset} was never committed")
        if offset >= floor:
            return
        if offset in self._unknown[where]:
            self.acknowledged[where] = offset
        else:
            self._say(f"{where}: offset {offset} is committed, and {floor} had been acknowledged")


class WatchedCluster(Cluster):
    """The cluster as a client sees it whose commits are written down."""

    ledger: CommitLedger

    async def ask_coordinator(self, group: str, request: object, **options: Any) -> Any:
        if isinstance(request, OffsetCommitRequest):
            return await self._commit(group, request, options)
        if isinstance(request, OffsetFetchRequest):
            return await self._fetch(group, request, options)
        return await super().ask_coordinator(group, request, **options)

    async def _commit(self, group: str, request: OffsetCommitRequest, options: dict[str, Any]) -> Any:
        offered = {
            (group, TopicPartition(topic.name, each.partition_index)): each.committed_offset
            for topic in request.topics
            for each in topic.partitions
        }
        for where, offset in offered.items():
            self.ledger.begin(where, offset)
        answer = await super().ask_coordinator(group, request, **options)
        for topic in answer.topics:
            for each in topic.partitions:
                if not each.error_code:
                    where = group, TopicPartition(topic.name, each.partition_index)
                    self.ledger.acknowledge(where, offered[where])
        return answer

    async def _fetch(self, group: str, request: OffsetFetchRequest, options: dict[str, Any]) -> Any:
        floors = dict(self.ledger.acknowledged)
        answer = await super().ask_coordinator(group, request, **options)
        if not answer.error_code:
            for topic in answer.topics:
                for each in topic.partitions:
                    if not each.error_code:
                        where = group, TopicPartition(topic.name, each.partition_index)
                        self.ledger.fetched(where, each.committed_offset, floors.get(where, -1))
        return answer


def watched(ledger: CommitLedger) -> Callable[..., WatchedCluster]:
    """Return what makes such a view of the cluster."""

    def make(*args: Any, **named: Any) -> WatchedCluster:
        made = WatchedCluster(*args, **named)
        made.ledger = ledger
        return made

    return make
