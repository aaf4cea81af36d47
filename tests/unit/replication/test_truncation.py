"""Where a follower cuts its log: at the end of the last epoch that both logs have (KIP-101, KIP-279, KIP-595)."""

from __future__ import annotations

import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.replication.truncation import Truncation, diverging_epoch, last_epoch, truncation_point
from barnabas.storage.checkpoints import EpochStart
from barnabas.storage.leader_epochs import LeaderEpochs

NOTHING_KNOWN = EpochStart(-1, -1)


def epochs_of(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochStart(*entry) for entry in entries])


FOLLOWER = epochs_of((1, 0), (3, 20), (6, 50))
"""Its log ends at 60."""


@pytest.mark.parametrize(
    ("leader", "point"),
    [
        pytest.param((6, 80), (60, True), id="the leader has more: nothing to cut"),
        pytest.param((6, 55), (55, True), id="the leader has less of the same epoch"),
        pytest.param((6, 60), (60, True), id="the logs are the same"),
        pytest.param((3, 50), (50, True), id="the leader does not have the last epoch"),
        pytest.param((3, 45), (45, True), id="nor all of the epoch before"),
        pytest.param((3, 58), (50, True), id="the leader has more of the epoch before"),
        pytest.param((4, 70), (50, False), id="an epoch that the follower does not have"),
        pytest.param((2, 30), (20, False), id="such an epoch, further back"),
        pytest.param((0, 10), (0, True), id="an epoch before all that the follower has"),
        pytest.param((7, 99), (60, False), id="an answer to an earlier question"),
        pytest.param((-1, -1), (50, False), id="the leader knows nothing"),
        pytest.param((3, -1), (50, False), id="half an answer is none"),
        pytest.param((-1, 30), (50, False), id="nor is the other half"),
    ],
)
def test_where_to_cut(leader: tuple[int, int], point: tuple[int, bool]) -> None:
    assert truncation_point(FOLLOWER, 60, EpochStart(*leader)) == Truncation(*point)


def test_leader_that_knows_nothing_leaves_nothing_in_the_end() -> None:
    assert truncation_point(epochs_of((1, 0)), 20, NOTHING_KNOWN) == (0, False)
    assert truncation_point(epochs_of(), 0, NOTHING_KNOWN) == (0, True)


def test_empty_log_has_nothing_to_cut() -> None:
    assert last_epoch(epochs_of(), 80) == -1
    assert truncation_point(epochs_of(), 80, EpochStart(3, 20)) == (80, True)


def test_point_may_be_below_the_start_of_the_log() -> None:
    """Records were deleted here that the leader has in another form; the log begins anew at that point."""
    deleted_up_to_80 = epochs_of((3, 80), (6, 90))
    assert truncation_point(deleted_up_to_80, 95, EpochStart(3, 40)) == (40, True)


def test_epoch_that_wrote_nothing_is_not_asked_for() -> None:
    epochs = epochs_of((2, 0), (5, 20))
    assert epochs.latest == 5
    assert last_epoch(epochs, 20) == 2
    assert last_epoch(epochs, 21) == 5


def test_follower_finds_the_end_of_what_is_the_same_in_as_many_steps_as_epochs_differ() -> None:
    """The case of KIP-279: a fast failover left records of epochs that the other never saw, on both sides."""
    leader, leader_end = epochs_of((0, 0), (2, 10), (4, 30), (7, 40)), 50
    follower, end = epochs_of((0, 0), (1, 12), (3, 25), (5, 33)), 45
    points = []
    is_complete = False
    while not is_complete:
        answer = leader.end_offset_for(last_epoch(follower, end), leader_end)
        end, is_complete = truncation_point(follower, end, answer)
        follower.truncate_from(end)
        points.append(end)
    assert points == [33, 25, 10]


class TestWhatTheLeaderSays:
    LEADER = epochs_of((1, 0), (3, 20))
    """Its log ends at 40."""

    @pytest.mark.parametrize(
        ("fetch_offset", "last_fetched_epoch", "answer"),
        [
            (30, 3, None),
            (40, 3, None),
            (41, 3, (3, 40)),
            (20, 1, None),
            (21, 1, (1, 20)),
            (15, 2, (1, 20)),
            (0, -1, None),
            (5, 0, (0, 0)),
        ],
    )
    def test_where_the_logs_part(self, fetch_offset, last_fetched_epoch, answer):
        assert diverging_epoch(self.LEADER, 40, fetch_offset, last_fetched_epoch) == answer

    @pytest.mark.parametrize("last_fetched_epoch", [4, -2])
    def test_epoch_that_is_not_known_is_refused(self, last_fetched_epoch):
        with pytest.raises(ApiError, match=f"epoch {last_fetched_epoch}") as caught:
            diverging_epoch(self.LEADER, 40, 30, last_fetched_epoch)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
