"""Who is in sync, and how far the high watermark may go: the leader's view of one partition in one epoch."""

from __future__ import annotations

import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.replication.in_sync import RemoteReplicas

LAG_S = 10.0


def leading(isr=(1, 2, 3), log_end_offset=0, high_watermark=0, replicas=(1, 2, 3)):
    """A leader, broker 1, whose epoch begins at second 0."""
    return RemoteReplicas(1, 7, replicas, isr, log_end_offset, high_watermark, 0.0)


def wanted(replicas, now_s, log_end_offset, ineligible=()):
    return replicas.wanted_isr(now_s, LAG_S, log_end_offset, lambda broker_id: broker_id not in ineligible)


def fetch_all(replicas, followers, offset, now_s=0.0):
    for each in followers:
        replicas.on_fetch(each, offset, offset, now_s)


class TestHighWatermark:
    def test_leader_without_followers_has_all(self):
        assert leading(isr=(1,), replicas=(1,)).high_watermark(5) == 5

    def test_is_the_least_end_among_the_in_sync(self):
        replicas = leading()
        replicas.on_fetch(2, 4, 9, 0.1)
        replicas.on_fetch(3, 6, 9, 0.1)
        assert replicas.high_watermark(9) == 4

    def test_member_that_has_not_fetched_in_this_epoch_holds_it(self):
        replicas = leading(log_end_offset=5, high_watermark=3)
        replicas.on_fetch(2, 9, 9, 0.1)
        assert replicas.high_watermark(9) == 3

    def test_replica_that_is_not_in_sync_does_not_hold_it(self):
        replicas = leading(isr=(1, 2))
        replicas.on_fetch(2, 9, 9, 0.1)
        assert replicas.high_watermark(9) == 9

    def test_never_goes_back(self):
        replicas = leading(isr=(1,))
        assert replicas.high_watermark(9) == 9
        replicas.adopt((1, 2))
        replicas.on_fetch(2, 4, 9, 0.1)
        assert replicas.high_watermark(9) == 9

    def test_is_not_beyond_the_end_after_an_unclean_claim(self):
        assert leading(isr=(1,), log_end_offset=5, high_watermark=8).high_watermark(5) == 5

    def test_counts_a_member_that_is_being_taken_in(self):
        replicas = leading(isr=(1, 2))
        fetch_all(replicas, (2, 3), 5)
        replicas.begin_change((1, 2, 3))
        replicas.on_fetch(2, 9, 9, 0.1)
        assert replicas.high_watermark(9) == 5

    def test_counts_a_member_that_is_being_dropped(self):
        replicas = leading()
        replicas.on_fetch(3, 9, 9, 0.1)
        replicas.begin_change((1, 3))
        assert replicas.high_watermark(9) == 0
        replicas.adopt((1, 3))
        assert replicas.high_watermark(9) == 9

    def test_change_whose_outcome_is_not_known_counts_both_sets_until_the_state_was_read(self):
        replicas = leading(isr=(1, 2))
        fetch_all(replicas, (2, 3), 5)
        replicas.begin_change((1, 2, 3))
        replicas.on_fetch(2, 9, 9, 0.1)
        assert replicas.high_watermark(9) == 5
        replicas.adopt((1, 2))
        assert replicas.high_watermark(9) == 9

    def test_member_that_is_no_replica_of_ours_holds_it(self):
        replicas = leading(isr=(1, 9))
        assert replicas.high_watermark(5) == 0
        replicas.adopt((1, 8))
        assert replicas.high_watermark(5) == 0

    def test_is_known_once_it_reaches_the_start_of_the_epoch(self):
        replicas = leading(isr=(1, 2), log_end_offset=5, high_watermark=3)
        assert not replicas.knows_high_watermark
        replicas.on_fetch(2, 5, 6, 0.1)
        replicas.high_watermark(6)
        assert replicas.knows_high_watermark


class TestFollowerThatIsAboutToJoin:
    def test_high_watermark_waits_for_it(self):
        replicas = leading(isr=(1,))
        replicas.on_fetch(2, 5, 5, 0.1)
        assert replicas.high_watermark(9) == 5

    def test_joins_a_busy_leader_that_is_alone(self):
        """At each of its fetches the leader has more; it has what the leader had at the fetch before."""
        replicas = leading(isr=(1,))
        assert replicas.high_watermark(100) == 100
        replicas.on_fetch(2, 0, 100, 0.1)
        assert replicas.high_watermark(200) == 200
        replicas.on_fetch(2, 100, 200, 0.2)
        assert replicas.high_watermark(300) == 200
        assert wanted(replicas, 0.2, 300) is None
        replicas.on_fetch(2, 200, 300, 0.3)
        assert wanted(replicas, 0.3, 350) == (1, 2)

    def test_is_waited_for_no_longer_than_it_may_lag(self):
        replicas = leading(isr=(1,))
        replicas.on_fetch(2, 5, 5, 0.1)
        assert wanted(replicas, 0.1, 5) == (1, 2)
        assert wanted(replicas, 11.0, 9) is None
        assert replicas.high_watermark(9) == 9

    def test_is_not_waited_for_once_it_is_gone(self):
        replicas = leading(isr=(1,))
        replicas.on_fetch(2, 5, 5, 0.1)
        wanted(replicas, 0.2, 9, ineligible={2})
        assert replicas.high_watermark(9) == 9

    def test_follower_far_behind_is_not_waited_for(self):
        replicas = leading(isr=(1,))
        replicas.on_fetch(2, 2, 9, 0.1)
        assert replicas.high_watermark(9) == 9


class TestShrinking:
    def test_follower_at_the_end_stays_however_long_it_is_silent(self):
        replicas = leading()
        fetch_all(replicas, (2, 3), 5)
        assert wanted(replicas, 1000.0, 5) is None

    def test_follower_that_is_gone_leaves_at_once_even_if_it_has_all(self):
        replicas = leading()
        fetch_all(replicas, (2, 3), 5)
        assert wanted(replicas, 0.1, 5, ineligible={2}) == (1, 3)

    def test_follower_that_does_not_reach_the_end_leaves(self):
        replicas = leading()
        fetch_all(replicas, (2, 3), 5)
        replicas.on_fetch(3, 8, 8, 9.0)
        assert wanted(replicas, 10.0, 9) is None
        assert wanted(replicas, 10.1, 9) == (1, 3)

    def test_follower_that_never_fetches_leaves(self):
        replicas = leading(log_end_offset=3)
        replicas.on_fetch(3, 3, 3, 9.0)
        assert wanted(replicas, 10.1, 3) == (1, 3)

    def test_follower_one_fetch_behind_a_busy_leader_stays(self):
        replicas = leading(isr=(1, 2))
        for tick in range(100):
            replicas.on_fetch(2, 10 * tick, 10 * (tick + 1), float(tick))
            assert wanted(replicas, float(tick), 10 * (tick + 1)) is None

    def test_dead_follower_that_lacks_something_leaves_at_once(self):
        replicas = leading()
        fetch_all(replicas, (2, 3), 5)
        assert wanted(replicas, 0.1, 6, ineligible={2}) == (1, 3)

    def test_leader_stays(self):
        replicas = leading()
        assert wanted(replicas, 10.1, 3, ineligible={1, 2, 3}) == (1,)

    def test_one_change_at_a_time(self):
        replicas = leading()
        replicas.begin_change((1, 2))
        assert replicas.is_changing
        assert wanted(replicas, 10.1, 3) is None
        replicas.adopt((1, 2))
        assert wanted(replicas, 10.1, 3) == (1,)


class TestExpanding:
    def test_follower_below_the_high_watermark_stays_out(self):
        replicas = leading(isr=(1, 3))
        replicas.on_fetch(3, 5, 5, 0.1)
        replicas.on_fetch(2, 4, 4, 0.1)
        replicas.on_fetch(3, 6, 6, 0.2)
        assert replicas.high_watermark(6) == 4
        replicas.on_fetch(3, 6, 6, 20.0)
        assert wanted(replicas, 20.0, 6) is None
        assert replicas.high_watermark(6) == 6
        replicas.on_fetch(2, 5, 5, 20.0)
        assert wanted(replicas, 20.0, 6) is None
        replicas.on_fetch(2, 6, 6, 20.0)
        assert wanted(replicas, 20.0, 6) == (1, 2, 3)

    def test_follower_below_the_start_of_the_epoch_stays_out(self):
        """The leader before may have acknowledged up to there; this one does not know it yet."""
        replicas = leading(isr=(1, 3), log_end_offset=5, high_watermark=2)
        replicas.on_fetch(2, 0, 4, 0.1)
        replicas.on_fetch(2, 4, 5, 0.2)
        assert wanted(replicas, 0.2, 5) is None
        replicas.on_fetch(2, 5, 5, 0.2)
        assert wanted(replicas, 0.2, 5) == (1, 2, 3)

    def test_follower_that_may_bring_back_what_was_deleted_stays_out(self):
        replicas = leading(isr=(1,))
        replicas.on_fetch(2, 9, 9, 0.1)
        replicas.on_fetch(3, 9, 9, 0.1)
        replicas.on_log_start(2, 4)
        replicas.on_log_start(3, 5)
        assert replicas.wanted_isr(0.1, LAG_S, 9, lambda _: True, log_start_offset=5) == (1, 3)
        replicas.on_log_start(2, 5)
        assert replicas.wanted_isr(0.1, LAG_S, 9, lambda _: True, log_start_offset=5) == (1, 2, 3)

    def test_deletion_waits_for_who_is_about_to_join(self):
        """Else one that deletes again and again would be ahead of a follower for ever."""
        replicas = leading(isr=(1,))
        assert replicas.least_log_start(5) == 5
        replicas.on_fetch(2, 9, 9, 0.1)
        replicas.on_log_start(2, 4)
        assert replicas.least_log_start(5) == 4
        assert replicas.wanted_isr(0.1 + 2 * LAG_S, LAG_S, 9, lambda _: True, log_start_offset=5) is None
        assert replicas.least_log_start(5) == 5

    def test_member_that_has_not_deleted_yet_stays(self):
        replicas = leading()
        fetch_all(replicas, (2, 3), 9, 0.1)
        assert replicas.wanted_isr(0.1, LAG_S, 9, lambda _: True, log_start_offset=5) is None

    def test_order_is_that_of_the_replicas(self):
        replicas = RemoteReplicas(1, 7, (3, 1, 2), (1,), 0, 0, 0.0)
        fetch_all(replicas, (2, 3), 0)
        assert wanted(replicas, 0.0, 0) == (3, 1, 2)

    def test_same_members_in_another_order_are_no_change(self):
        replicas = RemoteReplicas(1, 7, (3, 1, 2), (1, 2, 3), 0, 0, 0.0)
        assert wanted(replicas, 0.0, 0) is None

    def test_broker_that_is_shutting_down_is_not_taken_in(self):
        replicas = leading(isr=(1, 3))
        fetch_all(replicas, (2, 3), 5)
        assert wanted(replicas, 0.0, 5, ineligible={2}) is None


class TestFollowerThatStartedAgain:
    def test_fetch_from_before_its_start_is_refused(self):
        replicas = leading()
        # Epochs are random: that of the second registration is smaller here.
        for broker_epoch in (8, 5, 7):
            replicas.on_fetch(2, 0, 5, 0.1, broker_epoch=broker_epoch)
        for earlier in (8, 5):
            with pytest.raises(ApiError, match="has registered again") as caught:
                replicas.on_fetch(2, 5, 5, 0.2, broker_epoch=earlier)
            assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert replicas.log_end_offset_of(2) == 0
        assert replicas.broker_epoch_of(2) == 7

    def test_fetch_of_a_forgotten_run_is_refused(self):
        replicas = leading()
        replicas.on_fetch(2, 5, 5, 0.1, broker_epoch=8)
        replicas.forget(2)
        with pytest.raises(ApiError, match="has registered again"):
            replicas.on_fetch(2, 5, 5, 0.2, broker_epoch=8)
        replicas.on_fetch(2, 3, 5, 0.2, broker_epoch=4)
        assert replicas.log_end_offset_of(2) == 3

    def test_without_what_it_had_it_is_out_of_sync_at_once(self):
        replicas = leading(isr=(1, 2))
        replicas.on_fetch(2, 5, 5, 0.1, broker_epoch=8)
        assert replicas.high_watermark(5) == 5
        replicas.on_fetch(2, 3, 5, 0.2, broker_epoch=9)
        assert wanted(replicas, 0.2, 5) == (1,)

    def test_with_all_that_it_had_it_stays(self):
        replicas = leading(isr=(1, 2))
        replicas.on_fetch(2, 5, 5, 0.1, broker_epoch=8)
        assert replicas.high_watermark(5) == 5
        replicas.on_fetch(2, 5, 7, 0.2, broker_epoch=9)
        assert wanted(replicas, 0.2, 7) is None

    def test_its_earlier_fetches_do_not_count(self):
        replicas = leading(isr=(1,))
        replicas.on_fetch(2, 0, 5, 0.1, broker_epoch=8)
        replicas.on_fetch(2, 5, 9, 0.2, broker_epoch=9)
        assert replicas.high_watermark(12) == 12
        assert wanted(replicas, 0.2, 12) is None

    def test_fetch_without_a_broker_epoch_is_not_compared(self):
        replicas = leading()
        replicas.on_fetch(2, 0, 5, 0.1, broker_epoch=8)
        replicas.on_fetch(2, 5, 5, 0.2)
        assert replicas.log_end_offset_of(2) == 5
        assert replicas.broker_epoch_of(2) == 8


class TestWhatAFollowerMayNotAsk:
    @pytest.mark.parametrize("offset", [-1, 6])
    def test_offset_outside_the_log(self, offset):
        with pytest.raises(ApiError) as caught:
            leading().on_fetch(2, offset, 5, 0.1)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    @pytest.mark.parametrize("broker_id", [1, 4])
    def test_broker_that_does_not_follow(self, broker_id):
        with pytest.raises(ApiError, match=f"broker {broker_id}") as caught:
            leading().on_fetch(broker_id, 0, 5, 0.1)
        assert caught.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_acknowledging_needs_enough_members_that_the_tree_has() -> None:
    replicas = leading(isr=(1,))
    fetch_all(replicas, (2, 3), 5)
    replicas.begin_change((1, 2, 3))
    assert not replicas.can_acknowledge(2)
    replicas.adopt((1, 2, 3))
    assert replicas.can_acknowledge(3)
    assert not replicas.can_acknowledge(4)


def test_status_tells_who_lags_and_who_has_all() -> None:
    replicas = leading(isr=(1, 2))
    fetch_all(replicas, (2, 3), 5)
    assert replicas.lagging == (3,)
    assert replicas.is_in_sync(2)
    assert not replicas.is_in_sync(3)
    assert replicas.caught_up_followers(5) == (2,)
    assert replicas.caught_up_followers(6) == ()
    assert replicas.log_end_offset_of(9) == -1
    assert replicas.broker_epoch_of(9) == -1
