"""Who may lead a partition next, and in which order; how leadership is handed over."""

from __future__ import annotations

import pytest

from barnabas.coordination.values import NO_LEADER, PartitionState, Remnant
from barnabas.replication.leader_election import (
    Candidacy,
    candidacy,
    should_elect_preferred,
    transfer_leadership,
    waited_for,
    why_offline,
)

REPLICAS = (1, 2, 3)
STATE = PartitionState(leader=1, leader_epoch=4, isr=(1, 2, 3))


def claims(
    live, state=STATE, replicas=REPLICAS, unclean=False, new_incarnation=False, adding=()
) -> dict[int, Candidacy]:
    """What each live broker may claim."""
    found = {
        broker_id: candidacy(
            broker_id,
            replicas,
            state,
            frozenset(live),
            is_new_incarnation=new_incarnation,
            is_unclean_allowed=unclean,
            adding=adding,
        )
        for broker_id in live
    }
    return {broker_id: each for broker_id, each in found.items() if each is not None}


def leads(broker_id, isr, rank=0, unclean=False) -> Candidacy:
    return Candidacy(rank, PartitionState(broker_id, 5, isr), unclean)


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
    """Who was in sync, and lost memory: 3, and 1 and 2 where nothing else is said."""

    ALL = PartitionState(NO_LEADER, 4, (), (Remnant(1, 3, 20), Remnant(2, 3, 30), Remnant(3, 2, 90)))

    def test_others_claim_and_forget_it(self):
        state = PartitionState(1, 4, (1, 2), (Remnant(3),))
        assert claims({2, 3}, state) == {2: leads(2, (2,))}

    def test_it_waits_while_a_member_may_come_back_that_has_all(self):
        state = PartitionState(1, 4, (1,), (Remnant(2, 3, 30), Remnant(3, 3, 30)))
        assert claims({2, 3}, state) == {}

    def test_it_waits_until_all_have_told(self):
        state = PartitionState(NO_LEADER, 4, (), (Remnant(1), Remnant(2, 3, 30), Remnant(3, 2, 90)))
        assert claims({1, 2, 3}, state) == {}

    def test_who_has_the_most_claims_uncleanly(self):
        assert claims({1, 2, 3}, self.ALL) == {2: leads(2, (2,), unclean=True)}

    def test_who_has_the_most_is_waited_for(self):
        assert claims({1, 3}, self.ALL) == {}

    def test_of_two_with_as_much_the_first_of_the_replicas_goes_first(self):
        state = PartitionState(NO_LEADER, 4, (), (Remnant(1, 3, 30), Remnant(2, 3, 30), Remnant(3, 2, 90)))
        found = {2: leads(2, (2,), unclean=True), 1: leads(1, (1,), rank=1, unclean=True)}
        assert claims({1, 2, 3}, state, replicas=(2, 1, 3)) == found

    def test_replica_whose_log_is_gone_is_waited_for(self):
        state = PartitionState(NO_LEADER, 4, (), (Remnant(1, 3, 20), Remnant.gone(2)))
        assert claims({1, 2, 3}, state) == {}

    def test_those_that_told_most_go_first_where_the_topic_allows_any(self):
        state = PartitionState(NO_LEADER, 4, (), (Remnant.gone(1), Remnant(2, 3, 20), Remnant(3, 3, 30)))
        assert claims({1, 2, 3}, state, unclean=True) == {
            3: leads(3, (3,), unclean=True),
            2: leads(2, (2,), rank=1, unclean=True),
            1: leads(1, (1,), rank=2, unclean=True),
        }


class TestUncleanClaims:
    STATE = PartitionState(1, 4, (1, 3))

    def test_only_where_the_topic_allows_it(self):
        assert claims({2}, state=self.STATE) == {}
        assert claims({2}, state=self.STATE, unclean=True) == {2: leads(2, (2,), unclean=True)}

    def test_not_while_an_in_sync_replica_lives(self):
        assert claims({2, 3}, state=self.STATE, unclean=True) == {3: leads(3, (3,))}

    def test_member_that_lost_memory_goes_before_one_that_was_not_in_sync(self):
        state = PartitionState(1, 4, (1,), (Remnant(3),))
        assert claims({2, 3}, state, unclean=True) == {
            3: leads(3, (3,), unclean=True),
            2: leads(2, (2,), rank=1, unclean=True),
        }

    def test_replica_that_a_move_has_just_brought_in_goes_last(self):
        state = PartitionState(1, 4, (1,))
        assert claims({2, 4}, state, replicas=(4, 1, 2), unclean=True, adding=(4,)) == {
            2: leads(2, (2,), unclean=True),
            4: leads(4, (4,), rank=1, unclean=True),
        }


LOST = "since [3] may have lost records in a power failure or with their disks"
ALLOWED = "can lead if unclean.leader.election.enable=true, but records may be lost"


@pytest.mark.parametrize(
    ("state", "live", "line"),
    [
        (PartitionState(1, 4, (1, 3)), set(), "no leader: one of the in-sync replicas [1, 3] must come back"),
        (
            PartitionState(1, 4, (1, 3)),
            {2},
            f"no leader: one of the in-sync replicas [1, 3] must come back; [2] {ALLOWED}",
        ),
        (
            PartitionState(1, 4, (1,), (Remnant(3),)),
            {3},
            f"no leader: one of the in-sync replicas [1] must come back, {LOST}; [3] {ALLOWED}",
        ),
        (
            PartitionState(NO_LEADER, 4, (), (Remnant(3),)),
            set(),
            f"no leader: [3] must come back and report their log ends, {LOST}",
        ),
    ],
)
def test_one_line_says_why_a_partition_is_offline(state, live, line) -> None:
    assert why_offline(REPLICAS, state, live) == line


@pytest.mark.parametrize(
    ("state", "live", "waited"),
    [
        (PartitionState(1, 4, (1, 3), (Remnant(2),)), {2}, (1, 3)),
        (PartitionState(1, 4, (1, 3), (Remnant(2),)), {3}, ()),
        (PartitionState(NO_LEADER, 4, (), (Remnant(1), Remnant(2, 3, 30))), {2}, (1,)),
        (PartitionState(NO_LEADER, 4, (), (Remnant(1), Remnant(2, 3, 30))), {1}, ()),
        (PartitionState(NO_LEADER, 4, (), (Remnant.gone(1), Remnant(2, 3, 30))), {1, 2}, (1,)),
        (PartitionState(NO_LEADER, 4, (), (Remnant(1, 3, 20), Remnant(2, 3, 30))), {1}, (2,)),
        (PartitionState(NO_LEADER, 4, (), (Remnant(1, 3, 20), Remnant(2, 3, 30))), {2}, ()),
    ],
)
def test_who_is_waited_for(state, live, waited) -> None:
    assert waited_for(state, live) == waited


class TestHandingOver:
    def test_to_the_first_live_member_that_stays(self):
        assert transfer_leadership(STATE, REPLICAS, {1, 2, 3}, leaving={1}) == PartitionState(2, 5, (2, 3))
        assert transfer_leadership(STATE, REPLICAS, {1, 3}, leaving={1}) == PartitionState(3, 5, (2, 3))

    def test_not_to_a_replica_that_is_not_in_sync(self):
        state = PartitionState(1, 4, (1, 3))
        assert transfer_leadership(state, REPLICAS, {1, 2, 3}, leaving={1}) == PartitionState(3, 5, (3,))

    def test_nobody_could_take_it(self):
        assert transfer_leadership(STATE, REPLICAS, {1, 2}, leaving={1, 2}) is None
        assert transfer_leadership(STATE, REPLICAS, set()) is None

    def test_to_the_preferred_replica(self):
        assert transfer_leadership(STATE, (3, 1, 2), {1, 2, 3}) == PartitionState(3, 5, (3, 1, 2))

    def test_not_to_itself(self):
        assert transfer_leadership(STATE, REPLICAS, {1, 2, 3}) is None


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
    assert should_elect_preferred(PartitionState(1, 4, isr), replicas, live) is should
