"""Leader elections, as the changes between two samples of the metadata."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from barnabas.client.admin.topics import PartitionDescription, TopicDescription
from barnabas.console.history import History
from barnabas.model import NO_LEADER_EPOCH, TopicPartition

RECENT_MAX = 200
"""The number of elections that are kept with their partition."""
HOUR_S = 3600.0
NO_LEADER = -1
ALL, UNCLEAN = "elections", "unclean"


@dataclass(frozen=True, slots=True)
class Election:
    """A partition with another leader than in the sample before.

    :ivar time_s: the time of the sample, in seconds since the epoch.
    :ivar before: the id of the leader in the sample before; None if the partition had no leader.
    :ivar is_unclean: True if the new leader was neither in sync nor an eligible leader replica in the sample before.
    """

    time_s: float
    where: TopicPartition
    before: int | None
    leader: int
    is_unclean: bool


class Elections:
    """Counts leader elections from samples. A change of leader that is undone before the next sample is not seen.

    :ivar recent: the newest elections, the newest first.
    :ivar since_s: the time of the first sample; None before it.
    """

    def __init__(self) -> None:
        self.recent: deque[Election] = deque(maxlen=RECENT_MAX)
        self.since_s: float | None = None
        self._topics: Mapping[str, TopicDescription] = {}
        self._eligible: Mapping[TopicPartition, tuple[int, ...]] = {}
        self._counts = {ALL: 0, UNCLEAN: 0}
        self._history = History()

    def note(
        self,
        time_s: float,
        topics: Mapping[str, TopicDescription],
        eligible: Mapping[TopicPartition, tuple[int, ...]],
    ) -> None:
        """Compare a sample with the sample before.

        :param eligible: the eligible leader replicas (KIP-966) of the partitions that have some.
        """
        if self.since_s is None:
            self.since_s = time_s
        for each in self._changes(time_s, topics):
            self._counts[ALL] += 1
            self._counts[UNCLEAN] += each.is_unclean
            self.recent.appendleft(each)
        outdated = {name: known for name, known in self._topics.items() if _is_outdated(topics.get(name), known)}
        self._topics, self._eligible = {**topics, **outdated}, eligible
        self._history.note(time_s, self._counts)

    def _changes(self, time_s: float, topics: Mapping[str, TopicDescription]) -> Iterable[Election]:
        for name, topic in topics.items():
            known = self._topics.get(name)
            if known is None or known is topic or known.id != topic.id:
                continue
            for before, now in zip(known.partitions, topic.partitions, strict=False):
                if is_election(before, now):
                    where = TopicPartition(name, now.partition)
                    safe = {*before.isr, *self._eligible.get(where, ())}
                    leader = None if before.leader == NO_LEADER else before.leader
                    yield Election(time_s, where, leader, now.leader, now.leader not in safe)

    def count(self, kind: str = ALL) -> int:
        """Return the number of elections that were seen in the last hour."""
        times_s, totals = self._history.values(kind)
        if not times_s:
            return 0
        return int(totals[-1] - totals[bisect_left(times_s, times_s[-1] - HOUR_S)])

    def per_sample(self) -> tuple[list[float], list[float]]:
        """Return the times of the samples, and the elections since the sample before each."""
        times, totals = self._history.values(ALL)
        return times[1:], [after - before for before, after in pairwise(totals)]


def _is_outdated(topic: TopicDescription | None, known: TopicDescription) -> bool:
    """Return whether a sample of a topic is older than the sample before, or has an error instead of partitions."""
    if topic is None or topic.id != known.id:
        return False
    parts = zip(topic.partitions, known.partitions, strict=False)
    return bool(topic.error) or any(now.leader_epoch < before.leader_epoch for now, before in parts)


def is_election(before: PartitionDescription, now: PartitionDescription) -> bool:
    """Return whether a partition has another leader, or a leader again. An older leader epoch is outdated metadata."""
    if now.leader in (NO_LEADER, before.leader):
        return False
    return now.leader_epoch == NO_LEADER_EPOCH or now.leader_epoch > before.leader_epoch
