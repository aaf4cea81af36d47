"""Bugs that systems of this kind once had, or nearly: each is planted by patching one rule of production code.

A simulation that does not find them would find nothing else of their kind (`test_planted_bugs.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker import fetch_loop
from barnabas.broker.follower import Follower
from barnabas.broker.partition import Partition
from barnabas.coordination import registry
from barnabas.coordination.tree import ANY_VERSION, Set
from barnabas.replication.in_sync import LeaderReplicas
from barnabas.storage import Log

Plant = Callable[[pytest.MonkeyPatch], None]


def truncate_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """What Kafka did before KIP-101: whoever begins to follow cuts its log at the high watermark that it knows."""
    follow = fetch_loop.FetchLoop.follow

    def follow_after_a_cut(self: Any, follower: Follower) -> None:
        follow(self, follower)
        followed = self._followed[follower]
        self._do_beside(followed, follower.truncate_to(min(follower.log.high_watermark, follower.log.log_end_offset)))

    patch.setattr(fetch_loop.FetchLoop, "follow", follow_after_a_cut)


def acknowledge_before_replication(patch: pytest.MonkeyPatch) -> None:
    """The high watermark is the end of the leader's log, whoever has it."""
    patch.setattr(LeaderReplicas, "high_watermark", lambda self, log_end_offset: log_end_offset)


def write_states_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    """A leader that lost touch overwrites what was decided without it."""

    def blind(path: str, data: bytes, version: int = ANY_VERSION) -> Set:
        del version
        return Set(path, data)

    patch.setattr(registry, "Set", blind)


def lead_on_without_a_session(patch: pytest.MonkeyPatch) -> None:
    """A leader that cannot reach the tree goes on, and takes all others to be out of sync."""
    patch.setattr(Partition, "fence", lambda self: None)


def forget_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A restart begins with a high watermark of nothing, and a new leader shows it."""
    patch.setattr(LeaderReplicas, "knows_high_watermark", property(lambda self: True))
    patch.setattr(Log, "hold_high_watermark", _hold_nothing(Log.hold_high_watermark))


def append_before_truncating(patch: pytest.MonkeyPatch) -> None:
    """A follower appends what it is sent without asking where its log parts from its leader's."""

    async def truncate_nothing(*_: object) -> None:
        pass

    patch.setattr(fetch_loop.FetchLoop, "_truncate", truncate_nothing)


def _hold_nothing(hold: Callable[[Log], None]) -> Callable[[Log], None]:
    def hold_nothing(self: Log) -> None:
        hold(self)
        self.high_watermark = self.log_start_offset

    return hold_nothing
