"""The append of a follower: batches as they are, with the offsets and epochs that their leader gave them.

Batches are checked for damage as on a leader. Whether a producer may send them is not checked: the leader has decided
that. Their offsets are the leader's too.
"""

from __future__ import annotations

from barnabas.records.header import Buffer, read_header
from barnabas.storage.append import AppendInfo
from barnabas.storage.log import Log


def append_as_follower(log: Log, records: Buffer, leader_epoch: int) -> AppendInfo:
    """Append batches that come after all that the log has; wait for the disk if need be.

    Between the end of the log and the first batch there may be a gap, and between one batch and the next: the leader's
    log may have been compacted.

    The high watermark is the follower's to set (`Log.high_watermark_follows_end`).

    :param records: of one fetch answer, whole batches only.
    :param leader_epoch: of the leader that they come from.
    :raises CorruptBatchError: a batch is damaged, or does not come after the one before; nothing was appended.
    :raises ApiError: FENCED_LEADER_EPOCH; nothing was appended.
    :raises StorageError: the disk refused; nothing was appended.
    """
    view = memoryview(records)
    while (group := log.begin_append(lambda group: group.replicate(view), leader_epoch)) is None:
        log.roll(read_header(view).base_offset)
    log.write(group)
    outcome = log.account(group)
    if not isinstance(outcome, AppendInfo):
        raise outcome
    return outcome
