"""Requests about very many partitions: others have their turns meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.pipeline.call import ENTRIES_PER_STEP
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.errors import ErrorCode
from barnabas.protocol.messages import alter_partition_reassignments as alter
from barnabas.protocol.messages import list_partition_reassignments as listing
from barnabas.protocol.messages.elect_leaders import PREFERRED_ELECTION, ElectLeadersRequest, TopicPartitions
from tests.support.in_process_broker import Caller, run_with_broker

COUNT = 100 * ENTRIES_PER_STEP

ELECT = ElectLeadersRequest(
    election_type=PREFERRED_ELECTION, topic_partitions=[TopicPartitions(topic="away", partitions=list(range(COUNT)))]
)
ALTER = alter.AlterPartitionReassignmentsRequest(
    topics=[
        alter.ReassignableTopic(
            name="away",
            partitions=[alter.ReassignablePartition(partition_index=number, replicas=[0]) for number in range(COUNT)],
        )
    ]
)
LIST = listing.ListPartitionReassignmentsRequest(
    topics=[listing.ListPartitionReassignmentsTopics(name="away", partition_indexes=list(range(COUNT)))]
)


@pytest.mark.parametrize(("request_", "passes"), [(ELECT, 3), (ALTER, 2), (LIST, 1)])
def test_others_have_turns_while_one_asks_for_very_many_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: Any, passes: int
) -> None:
    async def scenario(caller: Caller) -> None:
        pauses = 0
        true_pause = CooperativeScheduler.pause

        async def pause(scheduler: CooperativeScheduler, *, is_short: bool = False) -> None:
            nonlocal pauses
            pauses += 1
            await true_pause(scheduler, is_short=is_short)

        monkeypatch.setattr(CooperativeScheduler, "pause", pause)
        response = await caller.call(request_)
        assert pauses >= passes * COUNT // ENTRIES_PER_STEP
        if request_ is ELECT:
            (elected,) = response.replica_election_results
            assert [each.partition_id for each in elected.partition_result] == list(range(COUNT))
        if request_ is ALTER:
            (topic,) = response.responses
            codes = {each.error_code for each in topic.partitions}
            assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    run_with_broker(tmp_path, scenario)
