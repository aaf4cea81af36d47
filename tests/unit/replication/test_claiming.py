"""Who may lead a partition next, and in which order; how leadership is handed over."""

from __future__ import annotations

import pytest

from barnabas.coordination.values import NO_LEADER, PartitionState
from barnabas.replication.claiming import Claim, claim, hand_over, should_hand_to_preferred, why_offline

REPLICAS = (1, 2, 3)
STATE = PartitionState(leader=1, leader_epoch=4, isr=(1, 2, 3))


def claims(live, lost=(), state=STATE, replicas=REPLICAS, unclean=False, new_incarnation=False) -> dict[int, Claim]:
    """What each live broker may claim."""
    found = {
        broker_id: claim(
            broker_id,
            replicas,
            state,
            frozenset(live),
            frozenset(lost),
            is_new_incarnation=new_incarnation,
            is_unclean_allowed=unclean,
        )
        for broker_id in live
    }
    return {broker_id: each for broker_id, each in found.items() if each is not None}


def leads(broker_id, isr, rank=0, unclean=False) -> Claim:
    return Claim(rank, PartitionState(broker_id, 5, isr), unclean)


class TestCleanClaims:
    def test_nobody_claims_while_the_leader_lives(self):
        assert claims({1, 2, 3}) == {}

    def test_in_sync_replicas_claim_in_the_order_of_the_replicas(self):
        assert claims({2, 3}) == {2: leads(2, (2, 3)), 3: leads(3, (2, 3), rank=1)}
        assert claims({2, 3}, replicas=(3, 1, 2)) == {3: leads(3, (3, 2)), 2: leads(2, (3, 2), rank=1)}

    def test_replica_that_is_not_in_sync_does_not_claim(self):
        assert claims({2, 3}, state=PartitionState(1, 4, (1, 3))) == {3: leads(3, (3,))}

    def test_broker_that_is_no_replica_does_not_claim(self):
        assert claims({2, 8}) == {2: leads(2, (2,))}

    def test_partition_without_a_leader_is_claimed(self):
        assert claims({3}, state=PartitionState(NO_LEADER, 4, (2, 3))) == {3: leads(3, (3,))}

    def test_leader_that_started_again_claims_first(self):
        assert claims({1, 3}, replicas=(3, 2, 1), new_incarnation=True) == {
            1: leads(1, (3, 1)),
            3: leads(3, (3, 1), rank=1),
        }

    def test_leader_that_is_alone_and_started_again_claims(self):
        assert claims({1}, state=PartitionState(1, 4, (1,)), new_incarnation=True) == {1: leads(1, (1,))}

    def test_leader_that_started_again_but_is_not_in_sync_does_not_claim(self):
        state = PartitionState(1, 4, (2, 3))
        assert claims({1, 2}, state=state, new_incarnation=True) == {2: leads(2, (2,))}

    def test_isr_of_nobody_lets_nobody_claim(self):
        assert claims({1, 2}, state=PartitionState(NO_LEADER, 4, ())) == {}


class TestLostMemory:
    def test_others_claim_and_drop_it_from_the_isr(self):
        assert claims({2, 3}, lost={2}) == {3: leads(3, (3,))}

    def test_leader_that_lost_it_gives_way(self):
        assert claims({1, 2}, lost={1}, new_incarnation=True) == {2: leads(2, (2,))}

    def test_it_waits_while_another_member_may_come_back(self):
        assert claims({2, 3}, lost={2, 3}) == {}

    def test_only_member_claims_uncleanly(self):
        state = PartitionState(2, 4, (2,))
        assert claims({1, 2}, lost={2}, state=state, new_incarnation=True) == {2: leads(2, (2,), unclean=True)}

    def test_all_members_back_without_it_claim_uncleanly_the_old_leader_first(self):
        found = claims({1, 2, 3}, lost={1, 2, 3}, replicas=(2, 1, 3), new_incarnation=True)
        assert found == {
            1: leads(1, (1,), unclean=True),
            2: leads(2, (2,), rank=1, unclean=True),
            3: leads(3, (3,), rank=2, unclean=True),
        }


class TestUncleanClaims:
    STATE = PartitionState(1, 4, (1, 3))

    def test_only_where_the_topic_allows_it(self):
        assert claims({2}, state=self.STATE) == {}
        assert claims({2}, state=self.STATE, unclean=True) == {2: leads(2, (2,), unclean=True)}

    def test_not_while_an_in_sync_replica_lives(self):
        assert claims({2, 3}, state=self.STATE, unclean=True) == {3: leads(3, (3,))}

    def test_member_without_its_memory_goes_before_one_that_was_never_in_sync(self):
        assert claims({2, 3}, lost={3}, state=self.STATE, unclean=True) == {
            3: leads(3, (3,), unclean=True),
            2: leads(2, (2,), rank=1, unclean=True),
        }


@pytest.mark.parametrize(
    ("live", "lost", "line"),
    [
        (set(), set(), "no leader: one of its in-sync replicas [1, 3] must come back"),
        (
            {2},
            set(),
            "no leader: one of its in-sync replicas [1, 3] must come back; "
            "[2] may lead with unclean.leader.election.enable=true, and records may be lost",
        ),
        (
            {3},
            {3},
            "no leader: one of its in-sync replicas [1] must come back, "
            "since [3] may have lost records with the memory of the machine; "
            "[3] may lead with unclean.leader.election.enable=true, and records may be lost",
        ),
    ],
)
def test_one_line_says_why_a_partition_is_offline(live, lost, line) -> None:
    assert why_offline(REPLICAS, PartitionState(1, 4, (1, 3)), live, lost) == line


class TestHandingOver:
    def test_to_the_first_live_member_that_stays(self):
        assert hand_over(STATE, REPLICAS, {1, 2, 3}, leaving={1}) == PartitionState(2, 5, (2, 3))
        assert hand_over(STATE, REPLICAS, {1, 3}, leaving={1}) == PartitionState(3, 5, (2, 3))

    def test_not_to_a_replica_that_is_not_in_sync(self):
        state = PartitionState(1, 4, (1, 3))
        assert hand_over(state, REPLICAS, {1, 2, 3}, leaving={1}) == PartitionState(3, 5, (3,))

    def test_nobody_could_take_it(self):
        assert hand_over(STATE, REPLICAS, {1, 2}, leaving={1, 2}) is None
        assert hand_over(STATE, REPLICAS, set()) is None

    def test_to_the_preferred_replica(self):
        assert hand_over(STATE, (3, 1, 2), {1, 2, 3}) == PartitionState(3, 5, (3, 1, 2))

    def test_not_to_itself(self):
        assert hand_over(STATE, REPLICAS, {1, 2, 3}) is None


@pytest.mark.parametrize(
    ("replicas", "isr", "live", "should"),
    [
        ((2, 1), (1, 2), {1, 2}, True),
        ((2, 1), (1, 2), {1}, False),
        ((2, 1), (1,), {1, 2}, False),
        ((1, 2), (1, 2), {1, 2}, False),
        ((), (1,), {1}, False),
    ],
)
def test_preferred_replica_leads_if_it_can(replicas, isr, live, should) -> None:
    assert should_hand_to_preferred(PartitionState(1, 4, isr), replicas, live) is should
