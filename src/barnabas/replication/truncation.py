"""Where the log of a follower stops being that of its leader, found by leader epochs and by nothing else.

The high watermark is no measure: a follower learns it later than the leader acknowledges by it, so a log that is cut
there may lose acknowledged records, and one that is not cut far enough keeps records that no other has (KIP-101). Two
logs are the same up to the end of the last epoch that both have, and an epoch ends where it ends first (KIP-279).

The leader says where it stands, in the answer to a fetch (KIP-595, `diverging_epoch`) or to OffsetForLeaderEpoch; the
follower compares (`truncation_point`), as Kafka's `AbstractFetcherThread` does, with one difference: where the leader
knows nothing, Kafka falls back on the high watermark, and this on earlier epochs.

A leader has to note its epoch in its log's epochs when it begins (`LeaderEpochs.assign` at the log's end), before it
answers: it then knows an epoch as late as any that a follower may ask for.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.errors import ApiError, ErrorCode
from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET
from barnabas.storage.checkpoints import EpochStart
from barnabas.storage.leader_epochs import LeaderEpochs


class Truncation(NamedTuple):
    """Where to cut a follower's log; `is_complete` if what then remains is the leader's, else it has to ask again."""

    offset: int
    is_complete: bool


def last_epoch(epochs: LeaderEpochs, log_end_offset: int) -> int:
    """Return the epoch of a log's last record: what a follower asks for, or fetches with.

    Not the latest that its epochs have: a leader that wrote nothing has noted its epoch at the end of its log. To ask
    for that one would bring the same answer for ever.

    :returns: -1 if the log has no records; or if no epoch is known of the last one: such a log cannot be compared with
        the leader's, and has to be fetched anew.
    """
    return epochs.epoch_for_offset(log_end_offset - 1)


def diverging_epoch(
    epochs: LeaderEpochs, log_end_offset: int, fetch_offset: int, last_fetched_epoch: int
) -> EpochStart | None:
    """Return where the leader's log parts from that of a follower who fetches, or None if it does not.

    :param epochs: the leader's, as is `log_end_offset`.
    :param last_fetched_epoch: of the record before `fetch_offset` in the follower's log; -1 if it has none.
    :returns: the latest epoch of the leader's up to that one, and the offset where it ends.
    :raises ApiError: OFFSET_OUT_OF_RANGE, the leader knows neither this epoch nor an earlier one.

    >>> leader = LeaderEpochs([EpochStart(0, 0), EpochStart(3, 100)])
    >>> diverging_epoch(leader, log_end_offset=250, fetch_offset=120, last_fetched_epoch=2)
    EpochStart(epoch=0, start_offset=100)
    """
    if last_fetched_epoch == NO_LEADER_EPOCH:
        return None
    end = epochs.end_offset_for(last_fetched_epoch, log_end_offset)
    if end.start_offset == NO_OFFSET:
        message = f"nothing is known of leader epoch {last_fetched_epoch}, nor of any before it"
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
    return end if end.epoch < last_fetched_epoch or end.start_offset < fetch_offset else None


def truncation_point(epochs: LeaderEpochs, log_end_offset: int, leader: EpochStart) -> Truncation:
    """Return where a follower has to cut its log, given what the leader knows of the follower's last epoch.

    Each answer that is not the last one makes the follower's last epoch an earlier one, so the questions end. The
    offset may be below the start of the follower's log, which then begins anew there.

    :param epochs: the follower's, as is `log_end_offset`.
    :param leader: the greatest epoch of the leader's up to the one asked for, and the offset where it ends; (-1, -1)
        if it knows none.

    >>> follower = LeaderEpochs([EpochStart(0, 0), EpochStart(2, 110)])
    >>> truncation_point(follower, 120, EpochStart(0, 100))
    Truncation(offset=100, is_complete=True)
    """
    last = last_epoch(epochs, log_end_offset)
    if last == NO_LEADER_EPOCH:
        return Truncation(log_end_offset, is_complete=True)
    if leader.epoch > last:  # the answer to an earlier question
        return Truncation(log_end_offset, is_complete=False)
    if leader.epoch < 0 or leader.start_offset < 0:
        # The leader has no record of this epoch. What it has of an earlier one, the next question tells.
        start = next(entry.start_offset for entry in epochs.entries if entry.epoch == last)
        return Truncation(start, is_complete=False)
    own = epochs.end_offset_for(leader.epoch, log_end_offset)
    if own.epoch != leader.epoch:
        return Truncation(own.start_offset, is_complete=False)
    return Truncation(min(own.start_offset, leader.start_offset, log_end_offset), is_complete=True)
