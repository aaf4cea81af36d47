"""Determines the offset at which a follower's log diverges from its leader's log, based on leader epochs.

The high watermark is not a suitable truncation offset, because a follower receives it later than the leader. Truncating
to the high watermark could lose acknowledged records, or keep records that no other replica has (KIP-101). Two logs are
equal up to the end of the last common epoch, which is the smaller of its two end offsets (KIP-279). The leader sends
its end offset of the epoch in a fetch response (KIP-595, `diverging_epoch`) or in OffsetForLeaderEpoch. The follower
compares it with its own log (`truncation_point`), as in Kafka's `AbstractFetcherThread`. There is one difference. If
the leader does not know the epoch, Kafka truncates to the high watermark, while Barnabas compares earlier epochs.

A new leader must call `LeaderEpochs.assign` with its log end offset before it responds to fetches. Then no follower can
send an epoch that is later than the leader's latest epoch.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.errors import ApiError, ErrorCode
from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET
from barnabas.storage.checkpoints import EpochStart
from barnabas.storage.leader_epochs import LeaderEpochs


class Truncation(NamedTuple):
    """The offset to which a follower must truncate its log.

    If `is_complete` is False, the follower must then query the leader again.
    """

    offset: int
    is_complete: bool


def last_epoch(epochs: LeaderEpochs, log_end_offset: int) -> int:
    """Return the leader epoch of the last record in a log. A follower sends this epoch to its leader.

    It may be lower than the latest epoch in `epochs`, because a leader adds its epoch even if it appends no records. If
    a follower sent such an epoch without records, the leader would return the same response each time.

    :returns: the leader epoch, or -1 if the log has no records or the epoch of the last record is unknown. Such a log
        cannot be compared with the leader's log, so it must be fetched from the start.
    """
    return epochs.epoch_for_offset(log_end_offset - 1)


def diverging_epoch(
    epochs: LeaderEpochs, log_end_offset: int, fetch_offset: int, last_fetched_epoch: int
) -> EpochStart | None:
    """Return the epoch and end offset at which the leader's log diverges from a follower's log, or None if the logs
    agree.

    :param epochs: the leader's epochs. `log_end_offset` is also the leader's.
    :param last_fetched_epoch: the leader epoch of the record before `fetch_offset` in the follower's log, or -1 if
        unknown.
    :returns: the leader's latest epoch that is not above `last_fetched_epoch`, and the offset at which it ends.
    :raises ApiError: OFFSET_OUT_OF_RANGE if the leader has neither this epoch nor an earlier epoch.

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
    """Return the offset to which a follower must truncate its log, given the leader's response for the follower's last
    epoch.

    Each incomplete result lowers the last epoch of the follower's log, so a finite number of requests is sufficient.
    The offset may be below the follower's log start offset. In this case, the truncated log is empty and starts at this
    offset.

    :param epochs: the follower's epochs. `log_end_offset` is also the follower's.
    :param leader: the leader's latest epoch that is not above the requested epoch, and its end offset; (-1, -1) if the
        leader has no such epoch.

    >>> follower = LeaderEpochs([EpochStart(0, 0), EpochStart(2, 110)])
    >>> truncation_point(follower, 120, EpochStart(0, 100))
    Truncation(offset=100, is_complete=True)
    """
    last = last_epoch(epochs, log_end_offset)
    if last == NO_LEADER_EPOCH:
        return Truncation(log_end_offset, is_complete=True)
    if leader.epoch > last:  # The epoch is above the requested epoch, so the response belongs to an earlier request.
        return Truncation(log_end_offset, is_complete=False)
    if leader.epoch < 0 or leader.start_offset < 0:
        # The follower has no record of the leader's epoch. The next request contains the follower's previous epoch.
        start = next(entry.start_offset for entry in epochs.entries if entry.epoch == last)
        return Truncation(start, is_complete=False)
    own = epochs.end_offset_for(leader.epoch, log_end_offset)
    if own.epoch != leader.epoch:
        return Truncation(own.start_offset, is_complete=False)
    return Truncation(min(own.start_offset, leader.start_offset, log_end_offset), is_complete=True)
