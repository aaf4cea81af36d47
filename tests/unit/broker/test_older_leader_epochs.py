"""A partition's state that goes back while brokers live: no epoch below that of a log begins again."""

from __future__ import annotations

import pytest

from barnabas.coordination import paths
from tests.support.topics_cluster import CLICKS, Cluster, Node, Run, append


async def read_again(nodes: list[Node]) -> None:
    for _ in range(4):
        for node in nodes:
            node.watch._seen = None  # a broker that missed a change reads everything
            await node.follow()


@pytest.mark.parametrize("replicas", [(1,), (1, 2)])
def test_state_that_goes_back_begins_no_epoch_again(run: Run, replicas: tuple[int, ...]) -> None:
    async def scenario(cluster: Cluster) -> None:
        nodes = await cluster.start(*replicas)
        await nodes[0].topic_admin.create("clicks", 1, {}, assignment=[list(replicas)])
        path = paths.partition_state(CLICKS)
        backup = cluster.tree.get(path).data
        nodes[0].die()
        nodes[0] = await Node(cluster, 1).start()
        await read_again(nodes[1:])
        (leader,) = [each for each in nodes if each.leads()]
        append(leader, 2)
        epoch = leader.info().state.leader_epoch
        assert epoch > 0
        cluster.tree.set(path, backup)
        await read_again(nodes)
        (leader,) = [each for each in nodes if each.leads()]
        assert leader.info().state.leader_epoch >= epoch
        assert leader.topics.replicas.leader(*CLICKS).log.log_end_offset == 2
        append(leader, 1)
        latest = leader.topics.replicas.leader(*CLICKS).log.leader_epochs.latest
        assert latest == leader.info().state.leader_epoch

    run(scenario)
