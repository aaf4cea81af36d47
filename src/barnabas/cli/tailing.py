"""Following a log file as `tail -F` does: through rotation (a new file under the name) and truncation.

`TailedFile` is one open file, whatever its name is by now. `FollowedPath` is a name, and the files that have
borne it: after a rotation the old file is read on for a while, because its writer may not have noticed yet.

Positions count bytes, and always lie at the beginning of a line: what comes before has been handed out.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from barnabas.cli.lines import READ_BYTES, LineSplitter
from barnabas.clock import Clock

HEAD_BYTES_MAX = 256
RETIRED_IDLE_MS = 60_000
"""How long ago a file that was rotated away must have been written to last, for it to be done with."""

_ROTATED = re.compile(r"[.-]\d[\d.:_T-]*$")

Identity = tuple[int, int]
"""Device and inode."""


@dataclass(frozen=True, slots=True)
class FileMark:
    """How far a file has been read, and how to know it again under another name.

    The inode alone does not tell: it is given to another file once this one is deleted. So its first bytes
    count as well, as many as there were when the mark was made.
    """

    device: int
    inode: int
    head_bytes: int
    head_sha256: str
    position: int

    @property
    def identity(self) -> Identity:
        """What stays the same when the file is renamed."""
        return self.device, self.inode

    def is_of(self, path: Path) -> bool:
        """Return whether the mark was made of the file that has this name now, and it has not been cut since."""
        with suppress(OSError):
            status = path.stat()
            if (status.st_dev, status.st_ino) == self.identity and status.st_size >= self.position:
                with path.open("rb") as file:
                    return _sha256(file.read(self.head_bytes)) == self.head_sha256
        return False


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines that were read together, and the mark of their file after them. `byte_count` is what they took."""

    lines: list[bytes]
    mark: FileMark
    byte_count: int


class TailedFile:
    """One open file, read line by line from a position on. Not thread-safe."""

    def __init__(self, path: Path, position: int = 0) -> None:
        """Open the file.

        :raises OSError: it cannot be opened.
        """
        self._file = path.open("rb", buffering=0)
        self._splitter = LineSplitter()
        self._read_to = position
        self._file.seek(position)
        status = os.fstat(self._file.fileno())
        head = os.pread(self._file.fileno(), HEAD_BYTES_MAX, 0)
        self._mark = FileMark(status.st_dev, status.st_ino, len(head), _sha256(head), position)

    @property
    def mark(self) -> FileMark:
        """The mark after the last line that was handed out."""
        return self._mark

    def read(self) -> Piece | None:
        """Return the lines that are there, at most READ_BYTES of them at a time; None when there are none now."""
        if os.fstat(self._file.fileno()).st_size < self._read_to:
            self._start_again()
        while chunk := self._file.read(READ_BYTES):
            self._read_to += len(chunk)
            if lines := self._splitter.feed(chunk):
                return self._piece(lines)
        return None

    def finish(self) -> Piece | None:
        """Return the last line, when it has no line feed and nobody will write one."""
        rest = self._splitter.rest()
        return self._piece([rest]) if rest else None

    def modified_at_ns(self) -> int:
        """Return when the file was written to last, in nanoseconds since the epoch."""
        return os.fstat(self._file.fileno()).st_mtime_ns

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _piece(self, lines: list[bytes]) -> Piece:
        position = self._read_to - self._splitter.pending_bytes
        before = self._mark
        head_bytes, digest = before.head_bytes, before.head_sha256
        if head_bytes < HEAD_BYTES_MAX:
            head = os.pread(self._file.fileno(), HEAD_BYTES_MAX, 0)
            head_bytes, digest = len(head), _sha256(head)
        self._mark = replace(before, position=position, head_bytes=head_bytes, head_sha256=digest)
        return Piece(lines, self._mark, position - before.position)

    def _start_again(self) -> None:
        """The file was cut, as `copytruncate` does: what is in it now is new from the first byte."""
        self._splitter.rest()
        self._file.seek(0)
        self._read_to = 0
        self._mark = replace(self._mark, position=0, head_bytes=0, head_sha256=_sha256(b""))


class FollowedPath:
    """A name in the file system, the file that has it now, and those that had it before.

    :param path: need not exist yet when it is only followed.
    :param marks: where an earlier run stopped, in the files that bore the name then.
    """

    def __init__(self, path: Path, marks: Iterable[FileMark], clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._current: TailedFile | None = None
        self._retired: list[TailedFile] = []
        self.lost_marks = [mark for mark in marks if not self._reopen(mark)]
        """Files of the earlier run that are not found any more: deleted, compressed or written over."""
        self.done_marks: list[FileMark] = []
        """Files that were rotated away and are read to their ends: nobody writes to them any more."""

    def read_all(self) -> Iterator[Piece]:
        """Yield all that is there now, the oldest file first; notice a new file under the name."""
        for file in self._open_files():
            while (piece := file.read()) is not None:
                yield piece
        if self._take_replacement():
            yield from self.read_all()
        yield from self._finish_retired()

    def finish(self) -> Iterator[Piece]:
        """Yield last lines without a line feed, for a reader who will not come back."""
        for file in self._open_files():
            if (piece := file.finish()) is not None:
                yield piece

    def close(self) -> None:
        """Close the files."""
        for file in self._open_files():
            file.close()

    def _open_files(self) -> list[TailedFile]:
        return [*self._retired, *([] if self._current is None else [self._current])]

    def _reopen(self, mark: FileMark) -> bool:
        """Open the file of a mark where the mark is, under whatever name it has now."""
        if mark.is_of(self.path):
            self._current = TailedFile(self.path, mark.position)
            return True
        for sibling in self._siblings():
            if mark.is_of(sibling):
                self._retired.append(TailedFile(sibling, mark.position))
                return True
        return False

    def _take_replacement(self) -> bool:
        """Retire the current file when it has lost the name, and open those that followed. Returns whether any did."""
        named = self._identity_of_name()
        if self._current is not None:
            if named == self._current.mark.identity:
                return False
            self._retired.append(self._current)
            self._current = None
        followers = [file for path in self._rotated_unseen() if (file := _open_if_there(path)) is not None]
        self._retired += followers
        self._current = _open_if_there(self.path)
        return bool(followers) or self._current is not None

    def _identity_of_name(self) -> Identity | None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def _rotated_unseen(self) -> list[Path]:
        """Return the files that were made and rotated away since the last look, the oldest first.

        They are known by names such as `app.log.1` and `app.log-20131231`, and by being written later than the
        last file that is known.
        """
        if not self._retired:
            return []
        known = {file.mark.identity for file in self._retired}
        newest_ns = max(file.modified_at_ns() for file in self._retired)
        found = []
        for sibling in self._siblings():
            with suppress(FileNotFoundError):
                status = sibling.stat()
                is_known = (status.st_dev, status.st_ino) in known
                if not is_known and status.st_mtime_ns > newest_ns and _ROTATED.search(sibling.name):
                    found.append((status.st_mtime_ns, sibling))
        return [sibling for _, sibling in sorted(found)]

    def _siblings(self) -> list[Path]:
        return sorted(self.path.parent.glob(f"{_glob_escape(self.path.name)}?*"))

    def _finish_retired(self) -> Iterator[Piece]:
        """Let go of the files that were rotated away long enough ago."""
        if self._current is None or not self._current.mark.position:
            return  # the last file known is what tells which files come after it
        now_ms = self._clock.expiry_ms()
        if now_ms is None:
            return
        oldest_ns = (now_ms - RETIRED_IDLE_MS) * 1_000_000
        for file in [file for file in self._retired if file.modified_at_ns() < oldest_ns]:
            if (piece := file.finish()) is not None:
                yield piece
            self._retired.remove(file)
            self.done_marks.append(file.mark)
            file.close()


def _open_if_there(path: Path) -> TailedFile | None:
    """Open a file that may be renamed or removed at any moment."""
    try:
        return TailedFile(path)
    except FileNotFoundError:
        return None


def _glob_escape(name: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
