"""A broker whose session is in doubt answers for no group: another one may coordinate it by now, and know more."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.in_process_broker import Caller, run_with_broker
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
        shard.replica.fence()
        not_here, nowhere = ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await answers(caller, member_id) == [not_here, not_here, nowhere, nowhere]
        with pytest.raises(ApiError):
            caller.broker.offsets.committed("g")
        shard.replica.unfence()
        assert shard.replica.times_fenced == 1, "the timers of groups notice it also when it is over"
        assert await answers(caller, member_id) == [ErrorCode.NONE] * 4

    run_with_broker(tmp_path, scenario, offsets_topic_num_partitions=1)
