"""Who owned which partition when, as the owner nodes in the tree tell it; and whether who was handed records owned it.

Consumers' own word for what they own is not enough: one that was stopped, or cut off, may believe in what is another's.
Times are bounds: a claim was made between two reads, of which the first did not show it; it ended at the latest when
the next claim of the same partition was seen. So what is found here did happen, however slow the machine is.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.clock import SYSTEM_CLOCK
from barnabas.coordination.metadata_store import NoNodeError, WatchEvent, parent_of
from barnabas.coordination.paths import group_owner
from barnabas.coordination.subtrees import ensure_paths
from barnabas.coordination.zookeeper.config import ZooKeeperConfig
from barnabas.coordination.zookeeper.metadata_store import ZooKeeperMetadataStore
from barnabas.errors import CoordinationError
from barnabas.model import TopicPartition

SESSION_S = 60.0
"""Long enough for a broker that is started anew."""


class Claim(NamedTuple):
    """An owner node: made by the change of this number, after `after_s` and before `seen_s`."""

    partition: int
    change: int
    owner: str
    after_s: float
    seen_s: float


class Handed(NamedTuple):
    """Records of a partition that a poll brought, which took from `begin_s` to `end_s`."""

    partition: int
    consumer: str
    begin_s: float
    end_s: float


def not_owned(claims: Iterable[Claim], handed: Iterable[Handed]) -> list[Handed]:
    """Return the polls that brought records of a partition that their consumer owned at no moment of the poll."""
    of_partition: dict[int, list[Claim]] = defaultdict(list)
    for claim in sorted(claims, key=lambda claim: claim.change):
        of_partition[claim.partition].append(claim)
    return [each for each in handed if not _may_own(of_partition[each.partition], each)]


def _may_own(claims: list[Claim], handed: Handed) -> bool:
    ends = [*(following.seen_s for following in claims[1:]), math.inf]
    return any(
        claim.owner == handed.consumer and claim.after_s <= handed.end_s and handed.begin_s <= end_s
        for claim, end_s in zip(claims, ends, strict=False)
    )


class OwnerHistory:
    """Follows the owner nodes of a group in one topic, until it is closed; then it tells of what kept it from that."""

    def __init__(self, connect: str, group: str, topic: str) -> None:
        self.election: list[Claim] = []
        self._folder = parent_of(group_owner(group, TopicPartition(topic, 0)))
        self._tree = ZooKeeperMetadataStore(ZooKeeperConfig(connect, session_timeout_s=SESSION_S))
        self._changed = threading.Event()
        self._ends = False
        self._error: CoordinationError | None = None
        self._read_s = -math.inf
        self._known: set[tuple[int, int]] = set()
        ensure_paths(self._tree, [self._folder])
        self._read()
        self._thread = threading.Thread(target=self._follow, name="owner-history")
        self._thread.start()

    def close(self) -> None:
        """Read once more, and stop."""
        self._ends = True
        self._changed.set()
        self._thread.join()
        self._tree.close()
        if self._error is not None:
            raise self._error

    def _follow(self) -> None:
        while not (self._ends or self._error):
            self._changed.wait()
            self._changed.clear()
            try:
                self._read()
            except CoordinationError as error:
                self._error = error

    def _read(self) -> None:
        begun_s = SYSTEM_CLOCK.monotonic()
        try:
            names = self._tree.children(self._folder, self._on_change)
        except NoNodeError:
            # The group was deleted. If there is one again, it has a folder first.
            self._tree.exists(self._folder, self._on_change)
            return
        nodes = self._tree.get_all([f"{self._folder}/{name}" for name in names])
        seen_s = SYSTEM_CLOCK.monotonic()
        for path, node in nodes.items():
            key = partition, change = int(path.rpartition("/")[2]), node.stat.created_at
            if key not in self._known:
                self._known.add(key)
                self.election.append(Claim(partition, change, node.data.decode(), self._read_s, seen_s))
        self._read_s = begun_s

    def _on_change(self, _event: WatchEvent) -> None:
        self._changed.set()
