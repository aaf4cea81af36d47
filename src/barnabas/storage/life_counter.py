"""The life counter of a log directory: it grows at each start and every 10 s, and a copy keeps the one that it had.

The broker stores the counter in the directory first, durably, and in the metadata tree afterwards. So the counter on
the disk is never below the one in the tree, unless somebody put an older copy of the directory in its place: a snapshot
of a virtual machine, or a backup. Such a directory may lack records that its replicas acknowledged.

A counter file that is missing or damaged while the tree has a counter stands for an older copy as well: nothing shows
that the directory is the newest.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from barnabas.errors import StorageError
from barnabas.model import LifeMark
from barnabas.storage.checkpoints import decode_life, encode_life
from barnabas.storage.file_names import LIFE_COUNTER
from barnabas.storage.filesystem import FileSystem, read_file, replace_file

logger = logging.getLogger(__name__)


AHEAD_MAX = 5
"""The counter of a directory may be so much above the tree's without a reason to log it: the tree did not answer."""


class OldCopy(NamedTuple):
    """A log directory that is an older copy of itself.

    :param own: what the directory says; None if its file is missing or damaged.
    :param known: what the metadata tree says.
    """

    own: LifeMark | None
    known: LifeMark

    def described(self, record_count: int) -> str:
        """Return how old the directory is.

        :param record_count: the sum of its log end offsets now.
        """
        missing = self.known.record_count - record_count
        lacks = f"; it lacks at least {missing} records" if missing > 0 else ""
        if self.own is None:
            return f"its {LIFE_COUNTER} is missing or damaged, and the metadata tree has life {self.known.life}{lacks}"
        age_s = max(0, self.known.noted_ms - self.own.noted_ms) // 1000
        return (
            f"its life counter is {self.own.life}, and the metadata tree has {self.known.life}, noted {age_s} s later"
            + lacks
        )


class LifeCounter:
    """The counter of one log directory. Used by one thread at a time."""

    def __init__(self, filesystem: FileSystem, folder: Path) -> None:
        self._filesystem = filesystem
        self._path = folder / LIFE_COUNTER
        self._highest = 0
        """The highest counter that the directory or the tree had."""
        self.mark: LifeMark | None = self._read()
        self.old_copy: OldCopy | None = None
        """Why this directory counts as an older copy of itself, if it does."""
        self.is_overtaken = False
        """Whether somebody else has raised the counter in the metadata tree since this broker started."""

    def compare(self, known: LifeMark | None) -> None:
        """Compare the counter with that of the metadata tree; later counters are higher than both."""
        own = self.mark
        if known is None:
            return
        if own is None or own.is_older_than(known):
            self.old_copy = OldCopy(own, known)
        elif own.life > known.life + AHEAD_MAX:
            logger.warning(
                "the metadata tree is older than log directory %s: it has life counter %d, the directory has %d; the"
                " higher one counts. After a restore of the tree run `barnabas cluster restored` before brokers start",
                self._path.parent, known.life, own.life,
            )  # fmt: skip
        self._highest = max(self._highest, known.life)

    def report(self, record_count: int) -> None:
        """Log it if this directory is an older copy of itself.

        :param record_count: the sum of its log end offsets now.
        """
        if self.old_copy is not None:
            logger.warning(
                "log directory %s is an older copy of itself: %s. Its replicas leave the in-sync replicas and fetch"
                " what they lack; if there is a newer copy, stop this broker and put that one in its place",
                self._path.parent, self.old_copy.described(record_count),
            )  # fmt: skip

    def raise_it(self, now_ms: int, record_count: int) -> LifeMark:
        """Raise the counter on the disk, durably.

        :raises StorageError: the disk refuses; the counter may be raised or not, and the next attempt uses another one.
        """
        self._highest += 1
        mark = LifeMark(self._highest, max(0, now_ms), record_count)
        try:
            replace_file(self._filesystem, self._path, encode_life(mark), durable=True)
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error}") from error
        self.mark = mark
        return mark

    def _read(self) -> LifeMark | None:
        try:
            mark = decode_life(read_file(self._filesystem, self._path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            logger.warning("%s cannot be read, so its life counter is unknown: %s", self._path, error)
            return None
        self._highest = mark.life
        return mark
