"""Leader epochs and where they begin and end (KIP-101)."""

from __future__ import annotations

import pytest

from barnabas.storage.checkpoints import EpochStart, decode_leader_epochs, encode_leader_epochs
from barnabas.storage.leader_epochs import LeaderEpochs

ENTRIES = (EpochStart(1, 10), EpochStart(3, 20), EpochStart(4, 50))


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(-1, (-1, -1)), (0, (0, 10)), (1, (1, 20)), (2, (1, 20)), (3, (3, 50)), (4, (4, 99)), (5, (-1, -1))],
)
def test_end_offset_of_an_epoch(epoch: int, answer: tuple[int, int]) -> None:
    assert LeaderEpochs(ENTRIES).end_offset_for(epoch, log_end_offset=99) == answer


def test_nothing_is_known_without_entries() -> None:
    assert LeaderEpochs().latest == -1
    assert LeaderEpochs().end_offset_for(0, 5) == (-1, -1)
    assert LeaderEpochs().epoch_for_offset(0) == -1


def test_epoch_of_an_offset() -> None:
    epochs = LeaderEpochs(ENTRIES)
    assert [epochs.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 49, 50, 10**9)] == [-1, 1, 1, 3, 3, 4, 4]


def test_epoch_without_records_gives_way() -> None:
    epochs = LeaderEpochs(ENTRIES)
    assert epochs.assign(6, 50)
    assert not epochs.assign(6, 60)
    assert not epochs.assign(2, 60)
    assert epochs.entries == (*ENTRIES[:2], EpochStart(6, 50))


def test_truncation_forgets_epochs() -> None:
    epochs = LeaderEpochs(ENTRIES)
    assert not epochs.truncate_from(51)
    assert epochs.truncate_from(20)
    assert epochs.entries == ENTRIES[:1]


def test_checkpoint_round_trip() -> None:
    assert decode_leader_epochs(encode_leader_epochs(ENTRIES)) == ENTRIES
    assert decode_leader_epochs(encode_leader_epochs([])) == ()
