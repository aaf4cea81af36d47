"""The read positions of `barnabas ship`, stored in the user's state directory.

There is one small JSON file per topic and path. Its name contains the topic id, so a topic that was deleted and
recreated receives all lines again. The file is written after the acknowledgements: a killed ship sends the lines since
the last save again and skips none (at least once).

Invariant: only one process at a time uses a state file; a lock file next to it ensures this.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from barnabas.cli.file_content import Identity
from barnabas.cli.file_marks import FileMark
from barnabas.cli.file_tail import Piece
from barnabas.errors import BarnabasError
from barnabas.model import in_file_name
from barnabas.portable import flush_file, try_lock


class ShipStateError(BarnabasError):
    """Another process ships the file to the same topic, or the state file is damaged."""


NAME_BYTES_MAX = 230
"""The maximum length in bytes of a topic or file name within the path of a state file."""


def default_state_folder() -> Path:
    """Return the directory of all states: `barnabas/ship` in XDG_STATE_HOME, by default ~/.local/state."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "barnabas" / "ship"


class ShipState:
    """The marks of one path in one topic. A context manager that locks and reads the state on entry.

    :param folder: the directory of all states.
    :param topic_id: the id of the topic.
    :param path: path of the log file, made absolute.
    """

    def __init__(self, folder: Path, topic: str, topic_id: str, path: Path) -> None:
        self.path = path.absolute()
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]
        file_name = f"{in_file_name(path.name, NAME_BYTES_MAX)}-{digest}.json"
        self._file = folder / f"{in_file_name(topic, NAME_BYTES_MAX)}-{topic_id}" / file_name
        self._lock: int | None = None
        self._marks: dict[Identity, FileMark] = {}
        self._known: list[FileMark] | None = None
        self._saved_at_ns: int | None = None
        self._is_saved = True

    def __enter__(self) -> Self:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        if not try_lock(self._lock):
            os.close(self._lock)
            raise ShipStateError(f"{self.path} is being shipped to this topic by another process")
        try:
            self._read()
        except ShipStateError:
            os.close(self._lock)
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        assert self._lock is not None, "exit without entry"
        os.close(self._lock)

    @property
    def marks(self) -> list[FileMark]:
        """The marks in the order of their files, the oldest first."""
        return list(self._marks.values())

    @property
    def known(self) -> list[FileMark] | None:
        """The marks of files next to the path that are not to be read; None if not recorded yet."""
        return None if self._known is None else list(self._known)

    @property
    def saved_at_ns(self) -> int | None:
        """The time of the last save in nanoseconds since the epoch; None in the first run."""
        return self._saved_at_ns

    def note(self, mark: FileMark, replaces: FileMark | None = None) -> None:
        """Record a mark: all lines before it are acknowledged.

        :param replaces: the mark of the original file, if this file is a copy.
        """
        if replaces is not None:
            self.forget(replaces)
        self._marks[mark.identity] = mark
        self._is_saved = False

    def note_piece(self, piece: Piece) -> None:
        """Record all lines up to the end of a piece as acknowledged."""
        for mark, replaces in piece.copies:
            self.note(mark, replaces)
        self.note(piece.mark, piece.replaces)

    def note_known(self, known: list[FileMark]) -> None:
        """Replace the marks of files that are not to be read."""
        if known != self._known:
            self._known = list(known)
            self._is_saved = False

    def forget(self, mark: FileMark) -> None:
        """Remove a mark. Keep the current mark if it has a later position or belongs to another file with the same
        inode."""
        held = self._marks.get(mark.identity)
        if held is not None and (held.position, held.head_sha256) == (mark.position, mark.head_sha256):
            del self._marks[mark.identity]
            self._is_saved = False

    def save(self) -> None:
        """Write the marks to disk atomically if they have changed."""
        if self._is_saved:
            return
        content = {
            "path": str(self.path),
            "files": [asdict(mark) for mark in self._marks.values()],
            "known": None if self._known is None else [asdict(mark) for mark in self._known],
        }
        beside = self._file.with_suffix(".new")
        with beside.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            flush_file(file.fileno())
        beside.replace(self._file)
        self._is_saved = True

    def _read(self) -> None:
        try:
            content = json.loads(self._file.read_text(encoding="utf-8"))
            marks = [FileMark(**mark) for mark in content["files"]]
            known = content.get("known")
            self._known = None if known is None else [FileMark(**mark) for mark in known]
            self._marks = {mark.identity: mark for mark in marks}
            self._saved_at_ns = self._file.stat().st_mtime_ns
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError) as error:
            raise ShipStateError(
                f"{self._file} is damaged ({error}); delete it to ship {self.path} from its beginning"
            ) from None
