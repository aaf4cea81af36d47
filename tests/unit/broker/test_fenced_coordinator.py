"""A broker whose session is in doubt answers for no group: another one may coordinate it by now, and know more."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.group_shell import FENCED_LOOK_S, GRACE_S
from barnabas.errors import ApiError, ErrorCode
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.unit.broker.calling import Caller, run_with_broker
from tests.unit.broker.test_group_apis import commit_to, joined


async def answers(caller: Caller, member_id: str) -> list[ErrorCode]:
    """What a member is told that says it is alive, asks for the offsets, and who coordinates; and who lists groups."""
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    find = FindCoordinatorRequest(coordinator_keys=["g"])
    return [
        (await caller.call(beat)).error_code,
        (await caller.call(fetch)).groups[0].error_code,
        (await caller.call(find)).coordinators[0].error_code,
        (await caller.call(ListGroupsRequest())).error_code,
    ]


def test_fenced_coordinator_sends_clients_to_look_again(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        await caller.call(commit_to("g", caller))
        member_id = await joined(caller, "g")
        shard = caller.broker.groups.find("g")
        assert await answers(caller, member_id) == [ErrorCode.NONE] * 4
        shard.partition.fence()
        not_here, nowhere = ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await answers(caller, member_id) == [not_here, not_here, nowhere, nowhere]
        with pytest.raises(ApiError):
            caller.broker.offsets.committed("g")
        shard.partition.unfence()
        assert await answers(caller, member_id) == [ErrorCode.NONE] * 4

    run_with_broker(tmp_path, scenario, offsets_topic_num_partitions=1)


def test_members_that_could_not_say_that_they_live_have_time_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(caller: Caller) -> None:
        await joined(caller, "g")
        groups = caller.broker.groups
        shard = groups.find("g")
        passed_s = 0.0
        monotonic = groups._clock.monotonic

        class Later:
            monotonic = staticmethod(lambda: monotonic() + passed_s)
            time_ms = staticmethod(groups._clock.time_ms)

        monkeypatch.setattr(groups, "_clock", Later)

        def count() -> int:
            groups._tick()
            described = shard.coordinator.describe("g")
            return len(described.members) if described else 0

        passed_s = 100.0
        shard.partition.fence()
        assert count() == 1
        passed_s += 100.0
        assert count() == 1
        assert groups._timer_deadline <= monotonic() + passed_s + FENCED_LOOK_S
        shard.partition.unfence()
        passed_s += GRACE_S / 2
        assert count() == 1
        passed_s += GRACE_S
        assert count() == 0

    run_with_broker(tmp_path, scenario, offsets_topic_num_partitions=1)
