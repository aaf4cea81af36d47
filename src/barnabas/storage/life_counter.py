"""The life counter of a data directory.

It increases at each start and every 10 s, but keeps its value in a copy of the directory.

Invariants. The broker stores the counter durably in the directory first, and then in the metadata store. So a counter
on the disk that is lower than in the metadata store shows that the directory is an older copy of itself, for example a
restored backup or a snapshot of a virtual machine. Such a directory may lack records that its replicas acknowledged. If
the metadata store has a counter but the counter file is missing or damaged, the directory is also treated as an older
copy.

The directory also stores the last known counter of the metadata store. If the counter in the metadata store is lower,
the metadata store was restored, or a power failure reverted its last changes. Then the directory may contain
acknowledged records from the time that the metadata store has lost.

Threads. Not thread-safe.

Errors. StorageError is raised if the write fails. The counter on the disk may have changed; the next attempt uses a
higher one.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from barnabas.errors import StorageError
from barnabas.log_lines import LogEvent, event
from barnabas.model import LifeMark
from barnabas.storage.checkpoints import decode_life, encode_life
from barnabas.storage.file_names import LIFE_COUNTER
from barnabas.storage.filesystem import FileSystem, read_file, replace_file

logger = logging.getLogger(__name__)


class OldCopy(NamedTuple):
    """The evidence that a data directory is an older copy of itself.

    :param own: the life counter of the directory, or None if its file is missing or damaged.
    :param known: the life counter in the metadata store.
    """

    own: LifeMark | None
    known: LifeMark

    def described(self, record_count: int) -> str:
        """Return a text that describes how old the directory is.

        :param record_count: the sum of the current log end offsets.
        """
        missing = self.known.record_count - record_count
        lacks = f"; it lacks at least {missing} records" if missing > 0 else ""
        if self.own is None:
            return f"its {LIFE_COUNTER} is missing or damaged; the metadata store has life {self.known.life}{lacks}"
        age_s = max(0, self.known.noted_ms - self.own.noted_ms) // 1000
        return (
            f"its life counter is {self.own.life}; the metadata store has {self.known.life}, recorded {age_s} s later"
            + lacks
        )


class LifeCounter:
    """The life counter of one data directory. Not thread-safe."""

    def __init__(self, filesystem: FileSystem, folder: Path) -> None:
        self._filesystem = filesystem
        self._path = folder / LIFE_COUNTER
        self._highest = 0
        """The highest known value of the counter, in the directory or in the metadata store."""
        self._confirmed = 0
        """The highest value of the counter in the metadata store that this directory has recorded."""
        self.mark: LifeMark | None = self._read()
        self.old_copy: OldCopy | None = None
        """The evidence that this directory is an older copy of itself, or None."""
        self.is_ahead = False
        """True if the metadata store is older than this directory, because it had a higher counter before."""
        self.is_overtaken = False
        """True if another process has raised the counter in the metadata store since this broker started."""

    def compare(self, known: LifeMark | None) -> None:
        """Compare the counter with the counter in the metadata store. All later values are higher than both."""
        own = self.mark
        known_life = 0 if known is None else known.life
        if known is not None and (own is None or own.is_older_than(known)):
            self.old_copy = OldCopy(own, known)
        elif known_life < self._confirmed:
            self.is_ahead = True
            logger.error(
                "the metadata store is older than data directory %s: its life counter is %s, but was %d before."
                " Replicas here report each truncation of their logs, and partitions without a live leader wait for all"
                " their replicas. After a restore of the metadata store run `barnabas cluster restored` before brokers"
                " start",
                self._path.parent, "none" if known is None else known_life, self._confirmed,
                extra=event(LogEvent.TREE_OLDER),
            )  # fmt: skip
        self._highest = max(self._highest, known_life)

    def report(self, record_count: int) -> None:
        """Log whether this directory is an older copy of itself.

        :param record_count: the sum of the current log end offsets.
        """
        if self.old_copy is not None:
            logger.warning(
                "data directory %s is an older copy of itself: %s. Its replicas leave the in-sync replicas and fetch"
                " missing records; if a newer copy exists, stop this broker and restore that copy",
                self._path.parent, self.old_copy.described(record_count),
            )  # fmt: skip

    def increment(self, now_ms: int, record_count: int) -> LifeMark:
        """Increment the counter on the disk durably.

        :raises StorageError: the write failed. The counter may have changed; the next attempt uses a higher one.
        """
        self._highest += 1
        mark = LifeMark(self._highest, max(0, now_ms), record_count)
        self._write(mark, self._confirmed)
        self.mark = mark
        return mark

    def confirm(self) -> None:
        """Store durably that the metadata store contains the counter of this directory.

        :raises StorageError: the write failed.
        """
        if self.mark is not None:
            self._write(self.mark, self.mark.life)
            self._confirmed = self.mark.life
            self.is_ahead = False

    def stay_ahead(self) -> None:
        """Store durably that the metadata store is older than this directory, so that the next start detects it again.

        :raises StorageError: the write failed.
        """
        if not self.is_ahead:
            confirmed = self._highest + 1
            self._write(self.mark or LifeMark(0), confirmed)
            self._confirmed, self.is_ahead = confirmed, True

    def _write(self, mark: LifeMark, confirmed: int) -> None:
        try:
            replace_file(self._filesystem, self._path, encode_life(mark, confirmed), durable=True)
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error}") from error

    def _read(self) -> LifeMark | None:
        try:
            mark, self._confirmed = decode_life(read_file(self._filesystem, self._path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            logger.warning("cannot read the life counter %s: %s; treating it as unknown", self._path, error)
            return None
        self._highest = mark.life
        return mark
