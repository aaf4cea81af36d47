"""Leader elections between two samples of the metadata."""

from __future__ import annotations

import pytest

from barnabas.client.admin.topics import PartitionDescription, TopicDescription
from barnabas.console.elections import RECENT_MAX, UNCLEAN, Elections
from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition
from tests.support.console_pages import topic

HERE = TopicPartition("clicks", 0)


def part(leader: int, epoch: int, isr: tuple[int, ...] = (1, 2), number: int = 0) -> PartitionDescription:
    return PartitionDescription(number, leader, (1, 2, 3), isr, leader_epoch=epoch)


def counted(*samples: TopicDescription, eligible: dict[TopicPartition, tuple[int, ...]] | None = None) -> Elections:
    elections = Elections()
    for time_s, sample in enumerate(samples):
        elections.note(time_s, {sample.name: sample}, eligible or {})
    return elections


def test_change_of_leader_is_an_election() -> None:
    elections = counted(topic("clicks", part(1, 0)), topic("clicks", part(2, 1)), topic("clicks", part(2, 1)))
    assert (elections.count(), elections.count(UNCLEAN)) == (1, 0)
    (found,) = elections.recent
    assert (found.time_s, found.where, found.before, found.leader, found.is_unclean) == (1, HERE, 1, 2, False)
    assert elections.per_sample() == ([1, 2], [1, 0])


def test_partition_that_gets_a_leader_again_is_an_election() -> None:
    elections = counted(topic("clicks", part(1, 0)), topic("clicks", part(-1, 1)), topic("clicks", part(1, 2)))
    assert [(each.before, each.leader) for each in elections.recent] == [(None, 1)]


def test_leader_that_was_not_in_sync_is_unclean() -> None:
    elections = counted(topic("clicks", part(-1, 0, isr=(1,))), topic("clicks", part(3, 1, isr=(3,))))
    assert (elections.count(), elections.count(UNCLEAN)) == (1, 1)
    assert elections.recent[0].is_unclean


def test_eligible_leader_replica_is_a_clean_leader() -> None:
    samples = topic("clicks", part(-1, 0, isr=())), topic("clicks", part(3, 1, isr=(3,)))
    assert counted(*samples, eligible={HERE: (3,)}).count(UNCLEAN) == 0
    assert counted(*samples, eligible={HERE: (2,)}).count(UNCLEAN) == 1


@pytest.mark.parametrize(
    "second",
    [
        topic("clicks", part(2, 1), topic_id="new"),
        topic("other", part(2, 1)),
        topic("clicks", part(-1, 1)),
        topic("clicks", part(1, 1)),
    ],
    ids=["recreated topic", "new topic", "lost leader", "same leader"],
)
def test_other_changes_are_no_elections(second: TopicDescription) -> None:
    assert counted(topic("clicks", part(1, 0)), second).count() == 0


def test_outdated_metadata_are_ignored() -> None:
    old, new = topic("clicks", part(1, 4)), topic("clicks", part(2, 5))
    assert counted(old, new, old, new).count() == 1


def test_topic_that_cannot_be_described_for_a_moment_is_remembered() -> None:
    failed = TopicDescription("clicks", "id", (), ErrorCode.LEADER_NOT_AVAILABLE)
    assert counted(topic("clicks", part(1, 0)), failed, topic("clicks", part(2, 1))).count() == 1


def test_brokers_without_leader_epochs_have_elections() -> None:
    assert counted(topic("clicks", part(1, -1)), topic("clicks", part(2, -1))).count() == 1


def test_only_elections_of_the_last_hour_count() -> None:
    elections = Elections()
    for time_s, sample in ((0, part(1, 0)), (30, part(2, 1)), (3_600, part(1, 2)), (3_700, part(2, 3))):
        elections.note(time_s, {"clicks": topic("clicks", sample)}, {})
    assert (elections.count(), len(elections.recent)) == (1, 3)


def test_kept_elections_are_bounded() -> None:
    before = topic("clicks", *(part(1, 0, number=number) for number in range(RECENT_MAX + 50)))
    after = topic("clicks", *(part(2, 1, number=number) for number in range(RECENT_MAX + 50)))
    elections = counted(before, after)
    assert (elections.count(), len(elections.recent)) == (RECENT_MAX + 50, RECENT_MAX)
