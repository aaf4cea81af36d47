"""A log that moves to another data folder of its broker (KIP-113): a copy grows there until it has all records.

Invariants. The copy is a log of its own, in a folder whose name is no partition's. It appends batches as a follower
does. When no batch is missing, it is closed, so all of it is durable, and takes the place of the log
(`DataFolders.swap`): its folder, which holds a note of the old place, gets the partition's name. The old folder is
renamed afterwards. A start that finds both folders goes by the note; a start that finds a copy removes it.

Threads. One at a time, except for `missing` and `is_truncated`, which any thread may ask.

Errors. StorageError if the disk refuses, or the log was truncated meanwhile.
"""

from __future__ import annotations

from pathlib import Path

from barnabas.errors import StorageError
from barnabas.records.header import read_header
from barnabas.storage.log import Log


class LogMove:
    """A log and its copy.

    :param current: the log that moves.
    :param future: its copy, still empty.
    :param target: the data folder of the copy.
    """

    def __init__(self, current: Log, future: Log, target: Path) -> None:
        self.current = current
        self.future = future
        self.target = target
        self._truncations = current.truncation_count
        self._first_dirty_offset = current.first_dirty_offset

    @property
    def missing(self) -> int:
        """The number of offsets that the copy lacks."""
        return max(0, self.current.log_end_offset - self.future.log_end_offset)

    @property
    def is_truncated(self) -> bool:
        """Whether the log was truncated since `prepare`: the copy may have removed records."""
        return self.current.truncation_count != self._truncations

    def prepare(self) -> None:
        """Empty the copy if the log was truncated, or begins behind the end of the copy now.

        :raises StorageError: the disk refuses.
        """
        if self.is_truncated or self.future.log_end_offset < self.current.log_start_offset:
            self._truncations = self.current.truncation_count
            self._first_dirty_offset = min(self._first_dirty_offset, self.current.first_dirty_offset)
            self.future.truncate_fully_and_start_at(self.current.log_start_offset)

    def append(self, batches: bytes, leader_epoch: int) -> None:
        """Append the next batches to the copy.

        :raises BarnabasError: a batch is damaged, or the disk refuses.
        """
        first, future = read_header(batches), self.future
        if future.log_start_offset == future.log_end_offset and first.base_offset < future.log_end_offset:
            # The log begins within this batch.
            future.lower_log_end_to(first.base_offset)
        future.append_as_follower(batches, leader_epoch)

    def complete(self) -> None:
        """Let the complete copy begin where the log does, make it durable, and close it.

        :raises StorageError: the disk refuses; or the log was truncated, and the copy is as it was.
        """
        if self.is_truncated:
            raise StorageError(f"{self.current.partition} was cut while it was moved")
        current, future = self.current, self.future
        if future.log_start_offset < current.log_start_offset:
            if current.log_start_offset == future.log_end_offset:
                future.roll()
            future.delete_records_before(current.log_start_offset)
            future.rename_deleted_files()
        future.close()

    def transfer_state(self, log: Log) -> None:
        """Pass on to the log in the new place what its files do not hold.

        :param log: the result of `DataFolders.swap`.
        """
        current = self.current
        for entry in current.leader_epochs.entries:
            if entry.epoch > log.leader_epochs.latest:
                log.leader_epochs.assign(*entry)
        log.accept_loss()
        if current.lost_from is not None:
            log.note_loss(current.lost_from)
        if current.is_newer_than_tree:
            log.mark_newer_than_tree()
        log.mark_dirty_from(self._first_dirty_offset)
