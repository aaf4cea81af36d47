"""When a broker takes partitions over, and in which order of brokers."""

from __future__ import annotations

import logging

import pytest

from barnabas.broker.broker_events import Events
from barnabas.broker.leader_election import PAUSE_S, LeaderElection
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.coordination.change_notifications import StateChange
from barnabas.coordination.topic_metadata_store import PartitionInfo, TopicInfo
from barnabas.coordination.values import NO_LEADER, BrokerRegistration, LiveBroker, PartitionState, Remnant
from barnabas.model import NO_LEADER_EPOCH, TopicPartition
from barnabas.storage.checkpoints import EpochStart

CLICKS = TopicPartition("clicks", 0)
TOPIC_ID = bytes(16)


class Seen:
    """The image, in which a test says who lives, and one broker's claims."""

    def __init__(self, broker_id: int, state: PartitionState, *live: int) -> None:
        self.metadata = MetadataCache(Events())
        partition = PartitionInfo((1, 2, 3), state, 4)
        self.metadata.put_topic(TopicInfo("clicks", TOPIC_ID, (partition,)))
        self.live(*live)
        self.is_unclean_allowed = False
        self.known_epoch = NO_LEADER_EPOCH
        self.end = EpochStart(6, 40)
        self.election = LeaderElection(
            broker_id,
            self.metadata,
            lambda _name: self.is_unclean_allowed,
            lambda _where: self.known_epoch,
            lambda _where: self.end,
        )

    def live(self, *brokers: int) -> None:
        self.metadata.put_brokers({each: LiveBroker(BrokerRegistration(each, "here", 1), each) for each in brokers})

    def begin_incarnation(self, broker_id: int) -> None:
        self.metadata.begin_incarnation(broker_id, self.metadata.image.topics.values())

    def look(self, now_s: float = 0.0) -> list[PartitionState]:
        changes = self.election.elect([CLICKS], now_s)
        assert all((each.where, each.topic_id, each.version) == (CLICKS, TOPIC_ID, 5) for each in changes)
        return [each.state for each in changes]


IN_SYNC = PartitionState(1, 7, (1, 2, 3))


def test_nobody_takes_over_from_a_leader_that_lives() -> None:
    assert Seen(2, IN_SYNC, 1, 2, 3).look() == []


def test_first_in_line_takes_over_at_once() -> None:
    assert Seen(2, IN_SYNC, 2, 3).look() == [PartitionState(2, 8, (2, 3))]


def test_next_in_line_waits_from_the_first_look_on() -> None:
    seen = Seen(3, IN_SYNC, 2, 3)
    assert seen.election.next_deadline is None
    assert seen.look(10.0) == []
    assert seen.election.next_deadline == 10.0 + PAUSE_S
    # Looking again, for whatever reason, neither shortens the pause nor begins it anew.
    assert seen.look(10.0 + PAUSE_S / 2) == []
    assert seen.election.next_deadline == 10.0 + PAUSE_S
    assert seen.election.due(10.0 + PAUSE_S / 2) == []
    assert seen.election.due(10.0 + PAUSE_S) == [CLICKS]
    assert seen.look(10.0 + PAUSE_S) == [PartitionState(3, 8, (2, 3))]
    assert seen.election.next_deadline is None


def test_who_waits_no_longer_does_when_another_leads() -> None:
    seen = Seen(3, IN_SYNC, 2, 3)
    assert seen.look() == []
    taken = StateChange(CLICKS, TOPIC_ID, PartitionState(2, 8, (2, 3)), 5)
    seen.metadata.put_states([taken])
    assert seen.look(PAUSE_S) == []
    assert seen.election.next_deadline is None


def test_own_leadership_of_an_earlier_life_is_claimed_anew() -> None:
    seen = Seen(1, IN_SYNC, 1, 2, 3)
    assert seen.look() == []
    seen.begin_incarnation(1)
    for _ in range(2):
        assert seen.look() == [PartitionState(1, 8, (1, 2, 3))], "until it is written"
    seen.metadata.put_states([StateChange(CLICKS, TOPIC_ID, PartitionState(1, 8, (1, 2, 3)), 5)])
    assert seen.election.elect([CLICKS], 0.0) == []


def test_new_life_takes_nothing_from_others() -> None:
    seen = Seen(2, IN_SYNC, 1, 2, 3)
    seen.begin_incarnation(2)
    assert seen.look() == []


def test_epoch_is_after_that_of_the_log() -> None:
    seen = Seen(2, IN_SYNC, 2)
    seen.known_epoch = 20
    assert seen.look() == [PartitionState(2, 21, (2,))]


def test_who_was_not_in_sync_leads_only_where_the_topic_allows_it(caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen(2, PartitionState(1, 7, (1,)), 2)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert seen.look() == []
        assert len([each for each in caplog.records if each.levelno == logging.ERROR]) == 1, "told once"
        seen.is_unclean_allowed = True
        assert seen.look() == [PartitionState(2, 8, (2,))]
    assert "records that only the in-sync replicas have are lost" in caplog.text


def test_partition_that_is_offline_again_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen(2, PartitionState(1, 7, (1,)), 2)
    with caplog.at_level(logging.ERROR):
        seen.look()
        seen.live(1, 2)
        seen.look()
        seen.live(2)
        seen.look()
    assert len(caplog.records) == 2


def test_partition_that_is_not_known_is_left_alone() -> None:
    assert Seen(1, IN_SYNC, 1).election.elect([TopicPartition("views", 0)], 0.0) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (PartitionState(1, 7, (1, 2)), PartitionState(NO_LEADER, 8, (2,), (Remnant(1),))),
        (PartitionState(2, 7, (1, 2)), PartitionState(2, 7, (2,), (Remnant(1),))),
        (PartitionState(1, 7, (1,)), None),
        # Written as it is: a leader that is about to take it in finds another version.
        (PartitionState(2, 7, (2,)), PartitionState(2, 7, (2,))),
    ],
    ids=["leader", "follower", "alone", "not in sync"],
)
def test_broker_that_lost_memory_withdraws_where_others_are_in_sync(
    before: PartitionState, after: PartitionState | None
) -> None:
    seen = Seen(1, before, 1, 2)
    wanted = [] if after is None else [StateChange(CLICKS, TOPIC_ID, after, 5)]
    assert seen.election.withdraw([CLICKS, TopicPartition("views", 0)], lambda _where: False) == wanted


def test_sole_replica_is_led_though_its_log_is_gone() -> None:
    seen = Seen(1, IN_SYNC, 1)
    sole = TopicPartition("sole", 0)
    seen.metadata.put_topic(TopicInfo("sole", TOPIC_ID, (PartitionInfo((1,), PartitionState(1, 7, (1,)), 4),)))
    seen.begin_incarnation(1)
    assert seen.election.withdraw([sole], lambda _where: True) == []
    assert [each.state for each in seen.election.elect([sole], 0.0)] == [PartitionState(1, 8, (1,))]


ALL_LOST = PartitionState(NO_LEADER, 7, (), (Remnant(1), Remnant(2, 6, 50)))


def test_broker_that_lost_memory_tells_what_it_has_before_it_claims(caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen(1, ALL_LOST, 1, 2)
    told = PartitionState(NO_LEADER, 7, (), (Remnant(1, 6, 40), Remnant(2, 6, 50)))
    assert seen.look() == [told]
    seen.metadata.put_states([StateChange(CLICKS, TOPIC_ID, told, 5)])
    assert seen.election.elect([CLICKS], 0.0) == [], "the other one has more"
    other = Seen(2, told, 1, 2)
    other.end = EpochStart(6, 50)
    assert other.look() == [PartitionState(2, 8, (2,))]
    assert "replicas [1, 2] lost unflushed records or have older copies of their log directories" in caplog.text
    assert "broker 2 has the most records and leads, with log end offset 50" in caplog.text


def test_what_was_told_and_is_wrong_is_told_anew() -> None:
    seen = Seen(2, PartitionState(NO_LEADER, 7, (), (Remnant(1, 6, 40), Remnant(2, 6, 50))), 1, 2)
    seen.end = EpochStart(6, 45)
    assert seen.look() == [PartitionState(NO_LEADER, 7, (), (Remnant(1, 6, 40), Remnant(2, 6, 45)))]


def test_who_is_waited_for_that_lost_memory_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen(2, ALL_LOST, 2)
    seen.end = EpochStart(6, 50)
    for _ in range(2):
        assert seen.look() == []
    assert caplog.text.count("[1] must come back and report their log ends") == 1
    caplog.clear()
    seen.live(1, 2)
    assert seen.look() == []
    assert caplog.text == ""


def test_leader_of_an_earlier_life_that_cannot_use_its_log_leaves_it_to_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = Seen(1, IN_SYNC, 1, 2, 3)
    assert seen.election.resign([CLICKS]) == [], "it leads in this life"
    seen.begin_incarnation(1)
    given_up = PartitionState(NO_LEADER, 8, (2, 3), (Remnant(1),))
    assert [each.state for each in seen.election.resign([CLICKS])] == [given_up]
    assert Seen(2, IN_SYNC, 1, 2, 3).election.resign([CLICKS]) == []
    assert Seen(2, given_up, 1, 2, 3).look() == [PartitionState(2, 9, (2, 3))]
    assert "cannot open the logs of" in caplog.text
    caplog.clear()
    alone = Seen(1, PartitionState(1, 7, (1,)), 1, 2, 3)
    alone.begin_incarnation(1)
    assert alone.election.resign([CLICKS]) == []
    assert caplog.text == ""


def test_broker_whose_log_is_gone_withdraws_though_it_alone_was_in_sync(caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen(1, PartitionState(1, 7, (1,)), 1, 2)
    seen.begin_incarnation(1)
    withdrawn = StateChange(CLICKS, TOPIC_ID, PartitionState(NO_LEADER, 8, (), (Remnant.gone(1),)), 5)
    assert seen.election.withdraw([CLICKS], lambda _where: True) == [withdrawn]
    assert "its log is missing" in caplog.text
    seen.metadata.put_states([withdrawn])
    seen.end = EpochStart(NO_LEADER_EPOCH, 0)
    assert seen.election.elect([CLICKS], 0.0) == []
    other = Seen(2, withdrawn.state, 1, 2)
    assert other.look() == []
    other.is_unclean_allowed = True
    assert other.election.elect([CLICKS], 0.0) == []
    assert other.election.next_deadline == PAUSE_S
    assert [change.state for change in other.election.elect([CLICKS], PAUSE_S)] == [PartitionState(2, 9, (2,))]


def test_log_that_was_put_back_is_led_again() -> None:
    seen = Seen(1, PartitionState(NO_LEADER, 8, (), (Remnant.gone(1),)), 1, 2)
    told = PartitionState(NO_LEADER, 8, (), (Remnant(1, 6, 40),))
    assert seen.look() == [told]
    seen.metadata.put_states([StateChange(CLICKS, TOPIC_ID, told, 5)])
    assert [each.state for each in seen.election.elect([CLICKS], 0.0)] == [PartitionState(1, 9, (1,))]


def test_partitions_without_a_leader_are_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen(2, PartitionState(1, 7, (1,)), 2)
    partitions = tuple(PartitionInfo((1, 2), PartitionState(1, 7, (1,)), 0) for _ in range(9))
    seen.metadata.put_topic(TopicInfo("many", TOPIC_ID, partitions))
    with caplog.at_level(logging.ERROR):
        seen.election.elect([TopicPartition("many", number) for number in range(9)], 0.0)
    assert len(caplog.records) == 1
    assert "and 6 more partitions" in caplog.text


@pytest.mark.parametrize(
    ("found", "written"),
    [
        (PartitionState(2, 7, (2, 3)), PartitionState(1, 8, (1, 2, 3))),
        (PartitionState(2, 6, (2, 3)), IN_SYNC),
        (PartitionState(1, 7, (1, 9)), IN_SYNC),
        (PartitionState(9, 8, (9,)), IN_SYNC),
    ],
)
def test_leader_begins_a_new_epoch_where_another_broker_leads_in_its_epoch(
    found: PartitionState, written: PartitionState
) -> None:
    seen = Seen(1, IN_SYNC, 1, 2, 3)
    seen.metadata.put_states([StateChange(CLICKS, TOPIC_ID, found, 5)])
    (change,) = seen.election.elect([CLICKS], 0.0)
    assert (change.state, change.version) == (written, 6)
