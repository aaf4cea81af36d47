"""The truncation of a follower's log where it diverges from its leader's, determined by leader epochs only.

The high watermark is not suitable: a follower learns it later than the leader. A log that is truncated there may lose
acknowledged records, and a log that is longer may keep records that no other replica has (KIP-101). Two logs are equal
up to the end of the last epoch that both have; an epoch ends at the smaller of its two end offsets (KIP-279).

The leader sends its epoch end in a fetch response (KIP-595, `diverging_epoch`) or in OffsetForLeaderEpoch. The follower
compares it (`truncation_point`), as in Kafka's `AbstractFetcherThread`, with one difference: if the leader does not
know the epoch, Kafka truncates to the high watermark, and Barnabas compares earlier epochs.

A new leader must call `LeaderEpochs.assign` at its log end before it responds. Its latest epoch is then at least as
late as any that a follower may send.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.errors import ApiError, ErrorCode
from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET
from barnabas.storage.checkpoints import EpochStart
from barnabas.storage.leader_epochs import LeaderEpochs


class Truncation(NamedTuple):
    """The offset to truncate a follower's log to. If not `is_complete`, the follower must ask the leader again."""

    offset: int
    is_complete: bool


def last_epoch(epochs: LeaderEpochs, log_end_offset: int) -> int:
    """Return the leader epoch of a log's last record, which a follower sends to its leader.

    It may be lower than the latest epoch in `epochs`: a leader that wrote no records has added its epoch at its log
    end. If a follower sent that epoch, the leader would return the same response each time.

    :returns: -1 if the log has no records or the epoch of the last record is unknown. Such a log cannot be compared
        with the leader's and must be fetched from the start.
    """
    return epochs.epoch_for_offset(log_end_offset - 1)


def diverging_epoch(
    epochs: LeaderEpochs, log_end_offset: int, fetch_offset: int, last_fetched_epoch: int
) -> EpochStart | None:
    """Return the point where the leader's log diverges from a fetching follower's; None if the logs agree.

    :param epochs: the leader's epochs; `log_end_offset` is the leader's, too.
    :param last_fetched_epoch: the epoch of the record before `fetch_offset` in the follower's log; -1 if unknown.
    :returns: the leader's latest epoch that is not above `last_fetched_epoch`, and the offset at which it ends.
    :raises ApiError: OFFSET_OUT_OF_RANGE if the leader has neither this epoch nor an earlier one.

    >>> leader = LeaderEpochs([EpochStart(0, 0), EpochStart(3, 100)])
    >>> diverging_epoch(leader, log_end_offset=250, fetch_offset=120, last_fetched_epoch=2)
    EpochStart(epoch=0, start_offset=100)
    """
    if last_fetched_epoch == NO_LEADER_EPOCH:
        return None
    end = epochs.end_offset_for(last_fetched_epoch, log_end_offset)
    if end.start_offset == NO_OFFSET:
        message = f"leader epoch {last_fetched_epoch} and all earlier ones are unknown"
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
    return end if end.epoch < last_fetched_epoch or end.start_offset < fetch_offset else None


def truncation_point(epochs: LeaderEpochs, log_end_offset: int, leader: EpochStart) -> Truncation:
    """Return the offset to which a follower must truncate its log, from the leader's end of the follower's last epoch.

    Each incomplete result lowers the last epoch of the follower's log, so a finite number of requests suffices. The
    offset may be below the follower's log start offset; the log is then empty and starts there.

    :param epochs: the follower's epochs; `log_end_offset` is the follower's, too.
    :param leader: the leader's latest epoch that is not above the requested one, and the offset at which it ends;
        (-1, -1) if the leader has none.

    >>> follower = LeaderEpochs([EpochStart(0, 0), EpochStart(2, 110)])
    >>> truncation_point(follower, 120, EpochStart(0, 100))
    Truncation(offset=100, is_complete=True)
    """
    last = last_epoch(epochs, log_end_offset)
    if last == NO_LEADER_EPOCH:
        return Truncation(log_end_offset, is_complete=True)
    if leader.epoch > last:  # The response belongs to an earlier request.
        return Truncation(log_end_offset, is_complete=False)
    if leader.epoch < 0 or leader.start_offset < 0:
        # The leader has no record of this epoch. The next request asks for the epoch before it.
        start = next(entry.start_offset for entry in epochs.entries if entry.epoch == last)
        return Truncation(start, is_complete=False)
    own = epochs.end_offset_for(leader.epoch, log_end_offset)
    if own.epoch != leader.epoch:
        return Truncation(own.start_offset, is_complete=False)
    return Truncation(min(own.start_offset, leader.start_offset, log_end_offset), is_complete=True)
