"""What a leader does for its in-sync replicas when a broker goes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from barnabas.broker.broker_events import Events
from barnabas.broker.isr_updates import IsrUpdates
from barnabas.clock import ManualClock
from barnabas.coordination.values import PartitionState
from tests.unit.broker.test_leader_replica import CLICKS, Bench

LAG_TIME_MAX_S = 30.0


def test_high_watermark_goes_on_when_a_follower_that_had_caught_up_is_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path, isr=(1, 2))
        for follower in (2, 3):
            bench.fetch(follower, 0)
        waiter = bench.append()
        bench.fetch(2, 1)
        assert bench.log.high_watermark == 0, "broker 3 is about to join"
        info = SimpleNamespace(state=PartitionState(1, 4, (1, 2)))
        image = SimpleNamespace(
            topics={CLICKS.topic: object()}, partition=lambda _: info, is_eligible=lambda broker, _epoch: broker != 3
        )
        updates = IsrUpdates(cast(Any, SimpleNamespace(image=image)), ManualClock(), LAG_TIME_MAX_S, Events())
        await updates.update([bench.partition])
        assert bench.log.high_watermark == 1
        assert waiter is not None

    asyncio.run(scenario())
