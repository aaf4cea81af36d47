"""Bugs that systems of this kind once had, or nearly: each is planted by patching one rule of production code.

A simulation that does not find them would find nothing else of their kind (`test_planted_bugs.py`).
"""

from __future__ import annotations

import pytest

from barnabas.broker import fetch_loop
from barnabas.replication.in_sync import LeaderReplicas


def acknowledge_before_replication(patch: pytest.MonkeyPatch) -> None:
    """The high watermark is the end of the leader's log, whoever has it."""
    patch.setattr(LeaderReplicas, "high_watermark", lambda self, log_end_offset: log_end_offset)


def append_before_truncating(patch: pytest.MonkeyPatch) -> None:
    """A follower appends what it is sent without asking where its log parts from its leader's."""

    async def truncate_nothing(*_: object) -> None:
        pass

    patch.setattr(fetch_loop.FetchLoop, "_truncate", truncate_nothing)
