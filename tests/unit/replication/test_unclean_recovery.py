"""What is written of brokers that lost memory, and who of them has the most."""

from __future__ import annotations

import pytest

from barnabas.coordination.values import NO_LEADER, PartitionState, Remnant
from barnabas.replication.unclean_recovery import (
    doubt,
    doubt_old_tree,
    most_complete_replicas,
    recover,
    report_log_end,
    withdraw,
)

TOLD = (Remnant(1, 3, 20), Remnant(2, 3, 30))


class TestWithdrawing:
    def test_member_leaves_the_isr_and_is_remembered(self):
        assert withdraw(2, PartitionState(1, 4, (1, 2))) == PartitionState(1, 4, (1,), (Remnant(2),))

    def test_leader_gives_its_leadership_up(self):
        assert withdraw(1, PartitionState(1, 4, (1, 2))) == PartitionState(NO_LEADER, 5, (2,), (Remnant(1),))

    def test_only_member_stays(self):
        assert withdraw(1, PartitionState(1, 4, (1,))) is None

    def test_only_member_whose_log_is_gone_does_not(self):
        state = PartitionState(NO_LEADER, 5, (), (Remnant.gone(1),))
        assert withdraw(1, PartitionState(1, 4, (1,)), is_gone=True) == state

    def test_last_member_does_not_stay_where_others_were_in_sync_before(self):
        before = PartitionState(3, 4, (3,), TOLD)
        assert withdraw(3, before) == PartitionState(NO_LEADER, 5, (), (*TOLD, Remnant(3)))

    def test_who_loses_memory_once_more_takes_back_what_it_told(self):
        before = PartitionState(NO_LEADER, 5, (), TOLD)
        assert withdraw(1, before) == PartitionState(NO_LEADER, 5, (), (Remnant(1), TOLD[1]))

    def test_only_member_in_an_older_copy_asks_all_and_does_not_doubt_the_tree(self):
        state = PartitionState(NO_LEADER, 5, (), (Remnant(1), Remnant(2), Remnant(3)))
        assert withdraw(1, PartitionState(1, 4, (1,)), in_old_copy_of=(1, 2, 3)) == state

    def test_state_that_is_doubted_stays_so(self):
        before = PartitionState(NO_LEADER, 5, (), TOLD, is_doubted=True)
        assert withdraw(1, before) == PartitionState(NO_LEADER, 5, (), (Remnant(1), TOLD[1]), is_doubted=True)

    def test_who_was_not_in_sync_writes_the_state_as_it_is(self):
        before = PartitionState(1, 4, (1,), (Remnant(2),))
        assert withdraw(3, before) == before


class TestDoubting:
    def test_tree_that_is_older_than_a_log_is_not_believed(self):
        state = PartitionState(NO_LEADER, 6, (), (Remnant(1), Remnant(2), Remnant(3)), is_doubted=True)
        assert doubt((3, 1, 2), PartitionState(1, 4, (1, 2)), 6) == state
        assert doubt((3, 1, 2), state, 6) is None

    def test_who_comes_later_and_knows_still_more_asks_all_again(self):
        state = PartitionState(NO_LEADER, 6, (), (Remnant(1, 6, 20), Remnant(2), Remnant(3)), is_doubted=True)
        asked = PartitionState(NO_LEADER, 7, (), (Remnant(1), Remnant(2), Remnant(3)), is_doubted=True)
        assert doubt((1, 2, 3), state, 7) == asked

    def test_old_tree_is_doubted_once_also_where_all_replicas_report_already(self):
        asked = PartitionState(NO_LEADER, 5, (), (Remnant(1, 3, 20), Remnant(2)))
        doubted = PartitionState(NO_LEADER, 6, (), (Remnant(1), Remnant(2)), is_doubted=True)
        assert doubt_old_tree((1, 2), asked) == doubted
        assert doubt_old_tree((1, 2), doubted) is None
        assert doubt_old_tree((1, 2), report_log_end(1, doubted, 3, 20)) is None

    def test_state_of_a_stranger_is_doubted(self):
        assert recover((1, 2), PartitionState(9, 4, (9,))).is_doubted

    def test_tree_that_knows_as_much_is_believed(self):
        assert doubt((1, 2), PartitionState(1, 4, (1, 2)), 4) is None

    def test_sole_replica_is_led_whatever_the_tree_says(self):
        assert doubt((1,), PartitionState(1, 4, (1,)), 9) is None


class TestTelling:
    def test_while_a_member_is_left_nothing_is_told(self):
        assert report_log_end(2, PartitionState(1, 4, (1,), (Remnant(2),)), 3, 20) is None

    def test_who_was_not_in_sync_tells_nothing(self):
        assert report_log_end(3, PartitionState(NO_LEADER, 5, (), TOLD), 3, 20) is None

    def test_what_is_left_is_told_once(self):
        before = PartitionState(NO_LEADER, 5, (), (Remnant(1), TOLD[1]))
        told = PartitionState(NO_LEADER, 5, (), TOLD)
        assert report_log_end(1, before, 3, 20) == told
        assert report_log_end(1, told, 3, 20) is None

    def test_what_is_told_ends_no_doubt(self):
        before = PartitionState(NO_LEADER, 5, (), (Remnant(1), TOLD[1]), is_doubted=True)
        assert report_log_end(1, before, 3, 20) == PartitionState(NO_LEADER, 5, (), TOLD, is_doubted=True)

    @pytest.mark.parametrize(("known", "is_told"), [(Remnant(1), True), (Remnant.gone(1), False)])
    def test_nothing_left_counts_unless_the_log_was_gone(self, known, is_told):
        told = report_log_end(1, PartitionState(NO_LEADER, 5, (), (known,)), -1, 0)
        assert told == (PartitionState(NO_LEADER, 5, (), (Remnant(1, -1, 0),)) if is_told else None)


@pytest.mark.parametrize(
    ("isr", "lost", "found"),
    [
        ((), TOLD, (2,)),
        ((3,), TOLD, ()),
        ((), (*TOLD, Remnant(3)), ()),
        ((), (*TOLD, Remnant.gone(3)), ()),
        ((), (*TOLD, Remnant(3, 2, 99)), (2,)),
        ((), (*TOLD, Remnant(3, 4, 1)), (3,)),
        ((), (*TOLD, Remnant(3, 3, 30)), (2, 3)),
        ((), (), ()),
    ],
)
def test_the_later_epoch_counts_and_then_the_longer_log(isr, lost, found) -> None:
    assert most_complete_replicas(PartitionState(NO_LEADER, 5, isr, lost)) == found
