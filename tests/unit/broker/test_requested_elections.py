"""Leaders that an administrator wants, at the brokers that can see to it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from barnabas.broker.handlers.elect_leaders import elect_leaders, elect_leaders_here
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.requested_elections import Outcome, RequestedElections
from barnabas.errors import DisconnectedError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.protocol.messages.elect_leaders import PREFERRED_ELECTION, UNCLEAN_ELECTION, ElectLeadersRequest
from tests.support.topics_cluster import CLICKS, Cluster, Node, Run
from tests.unit.broker.test_reassignment import Leader


class Asked:
    """A broker's elections, which ask those of other brokers."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self.cluster = cluster
        self.scheduler = CooperativeScheduler(time.monotonic)
        self.elections = RequestedElections(node.topics, node.id, self.connect, self.scheduler)

    async def connect(self, broker_id: int) -> Any:
        for node in self.cluster.nodes:
            if node.id == broker_id:
                return Connected(self, RequestedElections(node.topics, node.id, self.connect, self.scheduler))
        raise DisconnectedError("nobody is there")

    async def elect(self, kind: int, *wanted: TopicPartition) -> dict[TopicPartition, Outcome]:
        outcomes = await self.elections.elect(wanted or [CLICKS], kind)
        await self.cluster.follow()
        return outcomes


class Connected:
    """A connection with a broker; what that one changes is known at once."""

    def __init__(self, asked: Asked, elections: RequestedElections) -> None:
        self._cluster = asked.cluster
        self._scheduler = asked.scheduler
        self._elections = elections

    async def send(self, request: ElectLeadersRequest) -> Any:
        response = await elect_leaders_here.function(self._elections, self._scheduler, request, None)
        await self._cluster.follow()
        return response

    def close(self) -> None:
        pass


def code_of(outcomes: dict[TopicPartition, Outcome], where: TopicPartition = CLICKS) -> ErrorCode | None:
    outcome = outcomes[where]
    return None if outcome is None else ErrorCode.of(outcome.code)


@pytest.mark.parametrize("asked_id", [1, 2, 3])
def test_leader_hands_on_to_the_preferred_replica_whoever_is_asked(run: Run, asked_id: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, _three = await cluster.start(1, 2, 3)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        await one.topic_admin.reassign("clicks", {0: [2, 1]})
        await cluster.follow()
        await Leader(one).hear_from(2)
        asked = Asked(cluster, cluster.nodes[asked_id - 1])
        assert code_of(await asked.elect(PREFERRED_ELECTION)) is None
        assert two.leads()
        assert code_of(await asked.elect(PREFERRED_ELECTION)) is ErrorCode.ELECTION_NOT_NEEDED
        nowhere = TopicPartition("clicks", 7)
        outcomes = await asked.elect(PREFERRED_ELECTION, nowhere)
        assert code_of(outcomes, nowhere) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


def test_preferred_replica_that_cannot_lead_is_not_elected(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        await cluster.lose(one)
        await cluster.follow()
        assert two.leads()
        assert (
            code_of(await Asked(cluster, three).elect(PREFERRED_ELECTION)) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        )

    run(scenario)


def test_replica_that_is_first_in_line_claims_what_nobody_leads_whatever_the_settings_say(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.topic_admin.create("clicks", 1, {"unclean.leader.election.enable": "false"}, assignment=[[1, 2]])
        await cluster.follow()
        asked = Asked(cluster, three)
        assert code_of(await asked.elect(UNCLEAN_ELECTION)) is ErrorCode.ELECTION_NOT_NEEDED
        cluster.clock.advance(20)
        await Leader(one).hear_from()
        await cluster.lose(one)
        await cluster.follow()
        assert two.info().state.isr == (1,)
        assert not two.leads()
        assert code_of(await asked.elect(UNCLEAN_ELECTION)) is None
        assert two.leads()
        assert two.info().state.isr == (2,)
        await cluster.lose(two)
        await cluster.follow()
        assert code_of(await asked.elect(UNCLEAN_ELECTION)) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE

    run(scenario)


def test_replica_that_is_new_in_a_move_is_elected_last(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.topic_admin.create("clicks", 1, {"unclean.leader.election.enable": "false"}, assignment=[[1, 2]])
        await cluster.follow()
        cluster.clock.advance(20)
        await Leader(one).hear_from()
        await one.topic_admin.reassign("clicks", {0: [3, 2]})
        await cluster.follow()
        assert two.info().replicas == (3, 2, 1)
        await cluster.lose(one)
        await cluster.follow()
        assert code_of(await Asked(cluster, three).elect(UNCLEAN_ELECTION)) is None
        assert two.leads()

    run(scenario)


def test_broker_that_does_not_answer_elects_nobody(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, _two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 1, {}, assignment=[[1, 2]])
        await cluster.follow()
        asked = Asked(cluster, cluster.nodes[1])
        await one.topic_admin.reassign("clicks", {0: [2, 1]})
        await cluster.follow()
        cluster.nodes.remove(one)
        outcomes = await asked.elections.elect([CLICKS], PREFERRED_ELECTION)
        assert code_of(outcomes) is ErrorCode.BROKER_NOT_AVAILABLE
        cluster.nodes.append(one)

    run(scenario)


def test_who_asks_for_all_partitions_is_told_of_those_alone_that_needed_it(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.topic_admin.create("clicks", 2, {}, assignment=[[1, 2], [1, 2]])
        await cluster.follow()
        await one.topic_admin.reassign("clicks", {0: [2, 1]})
        await cluster.follow()
        await Leader(one).hear_from(2)
        request = ElectLeadersRequest(election_type=PREFERRED_ELECTION, topic_partitions=None)
        asked = Asked(cluster, two)
        response = await elect_leaders.function(asked.elections, asked.scheduler, request, None)
        (topic,) = response.replica_election_results
        assert [(each.partition_id, each.error_code) for each in topic.partition_result] == [(0, 0)]

    run(scenario)
