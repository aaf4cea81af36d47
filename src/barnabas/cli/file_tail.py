"""Follows a log file like `tail -F`: through rotation, truncation, compression and restarts.

`TailedFile` is one open file, independent of its current name. `FollowedPath` is a path and all files that had this
name. After a rotation, `FollowedPath` still reads the old file for some time, because the writer may not have reopened
the path yet.

Files are identified by device and inode, first bytes, and the bytes before the read position (`file_marks.py`). A file
with the bytes of a mark but another inode is a copy, as `copytruncate` and `gzip` create it; it is read from the mark.
A rotated file without a mark was created and rotated between two scans, and is read completely. Any other file is
passed to `report`.

Read positions count bytes and are always at the beginning of a line: all lines before a position have been returned.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from barnabas.cli.file_content import Content, Identity, UnreadableFileError, open_content, packed_kind
from barnabas.cli.file_marks import HEAD_BYTES_MAX, TAIL_BYTES_MAX, FileMark, sha256
from barnabas.cli.line_splitter import READ_BYTES, LineSplitter
from barnabas.clock import Clock

RETIRED_IDLE_MS = 60_000
"""A rotated file is regarded as complete this many ms after its last write."""
COMPARE_BYTES = 1 << 20
PACKED_SUFFIXES = r"(?:\.(?:gz|bz2|xz|zst|lz4|Z|zip))?"

_NUMBER_OR_DATE = r"[.-]\d[\dTZ.:_-]*?"
_ROTATED = re.compile(rf"(?:{_NUMBER_OR_DATE}|[.-]old)+{PACKED_SUFFIXES}")
"""The suffixes that rotation appends to the name of a log file, such as .1, -20131231 and .2.gz."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines that were read together, and the mark behind the last line.

    :param byte_count: size of the lines in the file, in bytes.
    :param start: position of the first line, in bytes.
    :param first_line: number of the first line, starting at 1; 0 if unknown.
    :param replaces: the mark of the original file, if this file is its copy.
    :param copies: marks of copies that have no new lines yet, each with the mark that it replaces.
    """

    lines: list[bytes]
    mark: FileMark
    byte_count: int
    path: Path
    start: int = 0
    first_line: int = 0
    replaces: FileMark | None = None
    copies: tuple[tuple[FileMark, FileMark], ...] = ()


class FileCutError(Exception):
    """The file was truncated or overwritten: it no longer contains the bytes already read."""


class TailedFile:
    """An open file, read line by line from a start position. Not thread-safe.

    Each read checks that the bytes before its position have not changed. So it detects a truncation even if the file
    has already grown beyond the position again.
    """

    def __init__(self, path: Path, content: Content, mark: FileMark | None = None) -> None:
        """Start at `mark`, which must belong to the content, or at the beginning without a mark."""
        self.path = path
        self._content = content
        self._is_at_end = False
        self._begin()
        if mark is not None:
            self._read_to = mark.position
            self._line_count = mark.line_count
            self._head = content.read_at(0, min(mark.position, HEAD_BYTES_MAX))
            size = min(mark.position, TAIL_BYTES_MAX)
            self._kept = bytearray(content.read_at(mark.position - size, size))
        self._mark = self._new_mark(self._read_to)
        self.replaces = mark if mark is not None and mark.identity != content.identity else None

    @property
    def mark(self) -> FileMark:
        """The mark at the end of the last returned line."""
        return self._mark

    @property
    def content(self) -> Content:
        return self._content

    @property
    def is_unread(self) -> bool:
        """True if no bytes have been read yet, not even part of an incomplete line."""
        return not self._read_to

    def read(self) -> Piece | None:
        """Return the next lines, about READ_BYTES at a time; None if the file has no more lines yet.

        :raises FileCutError: the file was truncated or overwritten; `start_again` reads it from its beginning.
        :raises UnreadableFileError: the compressed data are damaged.
        """
        try:
            return self._read()
        except UnreadableFileError:
            self._is_at_end = True  # decompressing it again before it changes would fail at the same position
            raise

    def _read(self) -> Piece | None:
        if self._content.has_changed():
            self._is_at_end = False
            self._check_not_cut()
        while not self._is_at_end and (chunk := self._content.read_some(self._read_to, READ_BYTES)):
            if not self._read_to and not self._content.is_packed and packed_kind(chunk) is not None:
                self._reopen_as_packed()
                continue
            if len(self._head) < HEAD_BYTES_MAX:
                self._head += chunk[: HEAD_BYTES_MAX - len(self._head)]
            self._read_to += len(chunk)
            self._kept += chunk
            if not self._content.is_packed:
                self._check_not_cut()
            if lines := self._splitter.feed(chunk):
                return self._piece(lines)
        self._is_at_end = self._content.is_packed
        return None

    def finish(self) -> Piece | None:
        """Return the last line even without a line feed, because no writer will complete it."""
        rest = self._splitter.rest()
        return self._piece([rest]) if rest else None

    def start_again(self) -> None:
        """Read the file from its beginning, because its content was replaced."""
        self._begin()
        self._mark = self._new_mark(0)
        self.replaces = None

    def modified_at_ns(self) -> int:
        """Return the time of the last write in nanoseconds since the epoch."""
        return self._content.modified_at_ns()

    def close(self) -> None:
        self._content.close()

    def _begin(self) -> None:
        self._splitter = LineSplitter()
        self._read_to = 0
        self._line_count = 0
        self._head = b""
        self._kept = bytearray()  # to compare: the last bytes before the position, and the incomplete line
        self._is_at_end = False

    def _check_not_cut(self) -> None:
        last = bytes(self._kept[-TAIL_BYTES_MAX:])
        is_same = (
            self._content.read_at(0, len(self._head)) == self._head
            and self._content.read_at(self._read_to - len(last), len(last)) == last
        )
        if not is_same:
            raise FileCutError

    def _reopen_as_packed(self) -> None:
        """Reopen the file as a compressed file. It was empty when it was opened, and now starts with the bytes of a
        compression format."""
        packed = open_content(self.path)
        if packed.identity != self._content.identity:
            packed.close()
            raise UnreadableFileError(f"{self.path}: the file was replaced while its first bytes were read")
        self._content.close()
        self._content = packed

    def _piece(self, lines: list[bytes]) -> Piece:
        before = self._mark
        position = self._read_to - self._splitter.pending_bytes
        first_line = self._line_count + 1 if self._line_count >= 0 else 0
        if self._line_count >= 0:
            self._line_count += len(lines)
        del self._kept[: max(0, len(self._kept) - self._splitter.pending_bytes - TAIL_BYTES_MAX)]
        self._mark = self._new_mark(position)
        replaces, self.replaces = self.replaces, None
        return Piece(lines, self._mark, position - before.position, self.path, before.position, first_line, replaces)

    def _new_mark(self, position: int) -> FileMark:
        head = self._head[:position]
        pending = self._read_to - position
        tail = bytes(self._kept[: len(self._kept) - pending])[-TAIL_BYTES_MAX:]
        device, inode = self._content.identity
        return FileMark(
            device, inode, len(head), sha256(head), position, len(tail), sha256(tail) if tail else "", self._line_count
        )


class FollowedPath:
    """A path in the file system, the file that it names now, and the files that it named before.

    :param path: may not exist yet.
    :param marks: the read positions of an earlier run.
    :param known: files next to the path that are not to be read, because they are complete or older than the first run.
        None if not recorded: all files older than `saved_at_ns` are then regarded as known.
    :param report: called with a line for each file that cannot be read completely or may have lost lines.
    :param saved_at_ns: the time at which the marks were saved, in nanoseconds since the epoch; None in the first run.
    """

    def __init__(
        self,
        path: Path,
        marks: Iterable[FileMark],
        clock: Clock,
        *,
        known: Iterable[FileMark] | None = None,
        report: Callable[[str], None] = lambda _line: None,
        saved_at_ns: int | None = None,
    ) -> None:
        self.path = path
        self._clock = clock
        self._report = report
        self._current: TailedFile | None = None
        self._retired: list[TailedFile] = []
        self._known: list[FileMark] = list(known or ())
        self._stuck: set[TailedFile] = set()
        self._refused: set[str] = set()
        self._reported: set[tuple[Path, Identity]] = set()
        self._scanned: list[tuple[Path, int, int, int, int]] | None = None
        self._present: set[Identity] = set()
        self._is_waiting = False
        self._last_write: tuple[Identity, int] | None = None
        self.problem_count = 0
        """The number of reported files that could not be read completely."""
        self.lost_marks: list[FileMark] = []
        """The marks of an earlier run whose files were deleted or overwritten."""
        self.done_marks: list[FileMark] = []
        """The marks of rotated files that are completely read and are no longer written."""
        marks = list(marks)
        if known is None and (saved_at_ns is not None or not marks):
            self._note_old_siblings(marks, saved_at_ns)
        self._resume(marks)

    @property
    def known_marks(self) -> list[FileMark]:
        """The marks of files next to the path that are not to be read."""
        return list(self._known)

    def take_copies(self) -> list[tuple[FileMark, FileMark]]:
        """Return the marks of copies without new lines, each with the mark that it replaces."""
        copies = []
        for file in self._open_files():
            if file.replaces is not None:
                copies.append((file.mark, file.replaces))
                file.replaces = None
        return copies

    def bytes_left(self) -> int:
        """Return the approximate number of unread bytes."""
        total = sum(file.content.bytes_from(file.mark.position) for file in self._open_files())
        if self._current is None:
            with suppress(OSError):
                total += self.path.stat().st_size
        return total

    def read_all(self) -> Iterator[Piece]:
        """Yield all available lines, the oldest file first. Open the new file if the path now names one."""
        for file in self._open_files():
            yield from self._read(file)
        if self._take_replacement():
            yield from self.read_all()
        yield from self._finish_retired()

    def finish(self) -> Iterator[Piece]:
        """Yield the last lines without a line feed. Call this before the last `close`."""
        for file in self._open_files():
            if (piece := file.finish()) is not None:
                yield piece

    def close(self) -> None:
        for file in self._open_files():
            file.close()

    def _open_files(self) -> list[TailedFile]:
        return [*self._retired, *([] if self._current is None else [self._current])]

    # --- reading ------------------------------------------------------------------------------------------

    def _read(self, file: TailedFile) -> Iterator[Piece]:
        if file is self._current and file.is_unread and file.content.is_linked() and self._has_been_written(file):
            # `copytruncate` of a file that was empty at the last scan does not change the bytes already read, so scan
            # for the copy. Read a deleted file first, because other files may be copies of it.
            followers = self._unseen()
            self._retired += followers
            for follower in followers:
                yield from self._read(follower)
        while True:
            try:
                piece = file.read()
            except FileCutError:
                yield from self._follow_cut(file)
                continue
            except UnreadableFileError as error:
                self._report_damage(file, error)
                return
            if piece is None:
                return
            self._stuck.discard(file)
            copies = self.take_copies()
            yield replace(piece, copies=tuple(copies)) if copies else piece

    def _has_been_written(self, file: TailedFile) -> bool:
        """Return whether a file was written or truncated since the last call."""
        last, self._last_write = self._last_write, (file.content.identity, file.modified_at_ns())
        return self._last_write != last

    def _report_damage(self, file: TailedFile, error: UnreadableFileError) -> None:
        if file not in self._stuck:
            self._stuck.add(file)
            self.problem_count += 1
            self._report(f"{error}; lines after byte {file.mark.position:,} (unpacked) are not shipped")

    def _follow_cut(self, file: TailedFile) -> Iterator[Piece]:
        """Handle a truncated file: read the rest of its old content from the copy, then files rotated since the last
        scan, and then the file from its start."""
        mark = file.mark
        copy = self._copy_of(mark) if mark.position else None
        file.start_again()
        if copy is not None:
            self._retired.append(copy)
            yield from self._read(copy)
        # Read a deleted file first, because other files may be copies of it.
        followers = self._unseen() if file.content.is_linked() else []
        self._retired += followers
        for follower in followers:
            yield from self._read(follower)
        if copy is None and not (followers and not mark.position):
            self._report(
                f"{file.path}: truncated or overwritten after byte {mark.position:,}, and no copy of the old content "
                "was found; lines written after ship's last read are lost; reading the file from its beginning"
            )

    # --- identifying files --------------------------------------------------------------------------------

    def _resume(self, marks: list[FileMark]) -> None:
        """Find the files of the saved marks under their current names, and open each file at its mark. Original files
        take precedence over copies."""
        found: dict[FileMark, tuple[Path, Content]] = {}
        candidates = self._open_candidates()
        try:
            for is_wanted in (_is_same_file, _is_copy):
                for mark in marks:
                    if mark in found:
                        continue
                    fitting = self._fitting(is_wanted, mark, candidates)
                    if fitting is not None:
                        found[mark] = fitting, candidates.pop(fitting)
        finally:
            for content in candidates.values():
                content.close()
        for mark in marks:
            if mark not in found:
                self.lost_marks.append(mark)
                continue
            path, content = found[mark]
            file = TailedFile(path, content, mark)
            if path == self.path:
                self._current = file
            else:
                self._retired.append(file)
        self._retired += self._unseen()

    def _fitting(
        self, is_wanted: Callable[[FileMark, Content], bool], mark: FileMark, candidates: dict[Path, Content]
    ) -> Path | None:
        return next((path for path, each in candidates.items() if self._fits(is_wanted, mark, each)), None)

    def _fits(self, is_wanted: Callable[[FileMark, Content], bool], mark: FileMark, content: Content) -> bool:
        try:
            return is_wanted(mark, content)
        except (UnreadableFileError, OSError):
            return False

    def _copy_of(self, mark: FileMark) -> TailedFile | None:
        """Return a file next to the path that is a copy of a mark's file, opened at the mark."""
        open_now = {file.content.identity for file in self._open_files()}
        for path in self._siblings():
            content = self._open_quietly(path)
            if content is None:
                continue
            is_free = content.identity not in open_now and not self._is_known_file(content)
            if is_free and self._fits(_is_copy, mark, content):
                return TailedFile(path, content, mark)
            content.close()
        return None

    def _is_known_file(self, content: Content) -> bool:
        # A file that is longer than the shipped position may still be another file: a copy can get the inode of a
        # deleted file.
        return any(
            each.identity == content.identity and self._fits(FileMark.is_end_of, each, content) for each in self._known
        )

    def _unseen(self) -> list[TailedFile]:
        """Return the files created and rotated since the last scan, the oldest first."""
        snapshot = self._snapshot()
        if snapshot == self._scanned:
            return []
        self._scanned = snapshot
        self._present = {(device, inode) for _, device, inode, _, _ in snapshot}
        found: list[tuple[int, str, Path, Content]] = []
        grown: list[TailedFile] = []
        for path in self._siblings():
            content = self._open_quietly(path)
            if content is None:
                continue
            if (file := self._grown(path, content)) is not None:
                grown.append(file)
            elif self._is_new(path, content):
                found.append((content.modified_at_ns(), path.name, path, content))
            else:
                content.close()
        found.sort(key=lambda each: (each[0], _reversed_number(each[1])))
        files = grown
        for _, _, path, content in found:
            if content.is_packed and any(_has_same_bytes(content, file.content) for file in files):
                content.close()  # `gzip` deletes the original only after writing the compressed file
            else:
                files.append(self._behind_deleted(path, content))
        return files

    def _grown(self, path: Path, content: Content) -> TailedFile | None:
        """Return a file that has grown since it was completely read, opened behind the lines already read."""
        if any(file.content.identity == content.identity for file in self._open_files()):
            return None
        read = [mark for mark in self._known if mark.line_count >= 0 and self._fits(_is_same_file, mark, content)]
        # Keep the other marks. They belong to deleted files with the same inode, whose compressed copies may still
        # exist.
        mark = max(read, key=lambda each: each.position, default=None)
        if mark is None or not self._fits(_has_more, mark, content):
            return None
        self._known.remove(mark)
        return self._behind_deleted(path, content, mark)

    def _is_new(self, path: Path, content: Content) -> bool:
        """Return whether a file next to the path must be read completely; report the file if this is uncertain."""
        try:
            return self._is_unknown(path, content) and self._is_of_rotation(path, content)
        except (UnreadableFileError, OSError) as error:
            self._report_once(path, content, f"{error}; its lines are not shipped")
            return False

    def _is_unknown(self, path: Path, content: Content) -> bool:
        if any(file.content.identity == content.identity for file in self._open_files()):
            return False
        for mark in self._known:
            if mark.identity == content.identity and mark.is_of(content):
                return False
        for mark in self._known:
            if mark.is_end_of(content):
                if not content.is_packed and mark.identity in self._present:
                    self._report_once(path, content, "not shipped: a shipped file has the same bytes")
                return False
        if not content.read_at(0, 1):
            return False
        for file in self._open_files():
            if _has_same_bytes(content, file.content):
                if not content.is_packed and not file.content.is_packed and file.content.is_linked():
                    self._report_once(path, content, f"not shipped: {file.path.name} has the same bytes")
                return False
        return True

    def _is_of_rotation(self, path: Path, content: Content) -> bool:
        suffix = path.name.removeprefix(self.path.name)
        if suffix != path.name and _ROTATED.fullmatch(suffix):
            older = [mark for mark in self._known if mark.head_bytes == HEAD_BYTES_MAX and mark.has_head_of(content)]
            if any(not content.read_at(mark.position, 1) for mark in older):
                self._report_once(path, content, "not shipped: the file is a shorter copy of a shipped file")
                return False
            return True
        self._report_once(
            path,
            content,
            f"not shipped: the name is not that of a rotated {self.path.name}; if it is one, name it in the command",
        )
        return False

    def _report_once(self, path: Path, content: Content, text: str) -> None:
        if (path, content.identity) not in self._reported:
            self._reported.add((path, content.identity))
            with suppress(UnreadableFileError, OSError):
                self._known.append(_mark_of_end(content))
            self._report(text if text.startswith(f"{path}:") else f"{path}: {text}")

    def _note_old_siblings(self, marks: list[FileMark], saved_at_ns: int | None) -> None:
        """Record files next to the path as known if they are older than the first run."""
        shipped = {mark.identity for mark in marks}
        for path in self._siblings():
            content = self._open_quietly(path)
            if content is None:
                continue
            with closing(content):
                if content.identity in shipped or (saved_at_ns is not None and content.modified_at_ns() > saved_at_ns):
                    continue
                with suppress(UnreadableFileError, OSError):
                    if content.read_at(0, 1):
                        self._known.append(_mark_of_end(content))

    def _open_candidates(self) -> dict[Path, Content]:
        paths = [self.path, *self._siblings()]
        return {path: content for path in paths if (content := self._open_quietly(path)) is not None}

    def _open_quietly(self, path: Path) -> Content | None:
        """Open a file that may be renamed or deleted at any time; return None if it no longer exists or is not a
        readable regular file."""
        try:
            status = path.stat()
            return open_content(path) if stat.S_ISREG(status.st_mode) else None
        except FileNotFoundError:
            return None
        except (UnreadableFileError, OSError) as error:
            if path != self.path and (path, (0, 0)) not in self._reported:
                self._reported.add((path, (0, 0)))
                self._report(f"{error}; if it is a rotated {self.path.name}, its lines are not shipped")
            return None

    def _siblings(self) -> list[Path]:
        """Return the files next to the path that rotation may have created. Their names are the name of the path with a
        suffix, or with a number or date before the extension."""
        name, stem = self.path.name, self.path.stem
        in_front = re.compile(rf"{re.escape(stem)}{_NUMBER_OR_DATE}{re.escape(self.path.suffix)}{PACKED_SUFFIXES}")
        try:
            names = [each.name for each in self.path.parent.iterdir()]
        except FileNotFoundError:
            return []
        behind = re.compile(rf"{re.escape(name)}[.~_-].*", re.DOTALL)
        found = [each for each in names if behind.fullmatch(each) or in_front.fullmatch(each)]
        paths = [self.path.parent / each for each in sorted(found) if each != name]
        named = _identity(self.path)  # the path may be a symbolic link to one of these files
        return [path for path in paths if _identity(path, OSError) not in (None, named)]

    def _snapshot(self) -> list[tuple[Path, int, int, int, int]]:
        stamps = []
        for path in self._siblings():
            with suppress(OSError):
                status = path.stat()
                stamps.append((path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
        return stamps

    # --- rotation -----------------------------------------------------------------------------------------

    def _take_replacement(self) -> bool:
        """Retire the current file if the path no longer names it, and open its successors; return whether any exist."""
        named = _identity(self.path)
        if self._current is not None:
            if named == self._current.content.identity:
                return False
            self._retired.append(self._current)
            self._current = None
        followers = self._unseen()
        self._retired += followers
        if named is None:
            self._report_waiting()
        else:
            self._current = self._open_named()
        return bool(followers) or self._current is not None

    def _open_named(self) -> TailedFile | None:
        try:
            content = open_content(self.path)
        except FileNotFoundError:
            return None
        except UnreadableFileError as error:
            self._report_refused(error)
            return None
        self._is_waiting = False
        return self._behind_deleted(self.path, content)

    def _behind_deleted(self, path: Path, content: Content, known: FileMark | None = None) -> TailedFile:
        """Open a file behind the lines that it shares with a deleted file. Editors and `rsync` replace a file by a new
        copy.

        :param known: a mark of the file. A copy may have the inode of a completely read and deleted file, and more
            lines.
        """
        deleted = [file.mark for file in self._retired if file.mark.position and not file.content.is_linked()]
        common = [mark for mark in deleted if self._fits(_is_copy, mark, content)]
        if known is not None:
            common.append(known)
        return TailedFile(path, content, max(common, key=lambda mark: mark.position, default=None))

    def _report_refused(self, error: UnreadableFileError) -> None:
        if str(error) not in self._refused:
            self._refused.add(str(error))
            self.problem_count += 1
            self._report(str(error))

    def _report_waiting(self) -> None:
        if not self._is_waiting and not self._retired:
            self._report(f"{self.path}: the file does not exist yet; waiting for it")
        self._is_waiting = True

    def _finish_retired(self) -> Iterator[Piece]:
        """Close the rotated files without a write for `RETIRED_IDLE_MS`."""
        now_ms = self._clock.expiry_ms()
        if self._current is None or not self._current.mark.position or now_ms is None:
            return
        oldest_ns = (now_ms - RETIRED_IDLE_MS) * 1_000_000
        for file in [file for file in self._retired if file.modified_at_ns() < oldest_ns]:
            if (piece := file.finish()) is not None:
                yield piece
            self._retired.remove(file)
            self._stuck.discard(file)
            if file.mark.position:
                self._known.append(file.mark)
            self.done_marks.append(file.mark)
            if file.replaces is not None:
                self.done_marks.append(file.replaces)
            file.close()


def _identity(path: Path, ignored: type[OSError] = FileNotFoundError) -> Identity | None:
    try:
        status = path.stat()
    except ignored:
        return None
    return status.st_dev, status.st_ino


def _is_same_file(mark: FileMark, content: Content) -> bool:
    return mark.identity == content.identity and mark.is_of(content)


def _is_copy(mark: FileMark, content: Content) -> bool:
    return mark.is_of(content)


def _has_more(mark: FileMark, content: Content) -> bool:
    return mark.is_of(content) and bool(content.read_at(mark.position, 1))


def _has_same_bytes(content: Content, other: Content) -> bool:
    """Return whether a file equals another one or its beginning."""
    position = 0
    try:
        while part := content.read_at(position, HEAD_BYTES_MAX if not position else COMPARE_BYTES):
            if other.read_at(position, len(part)) != part:
                return False
            position += len(part)
    except UnreadableFileError:
        return position > 0  # `gzip` may still be writing the compressed file
    return True


def _mark_of_end(content: Content) -> FileMark:
    """Return the mark of a file that must not be read: at its end, or after the first bytes of a compressed file."""
    size = len(content.read_at(0, HEAD_BYTES_MAX)) if content.is_packed else content.bytes_from(0)
    head = content.read_at(0, min(size, HEAD_BYTES_MAX))
    tail = content.read_at(max(0, size - TAIL_BYTES_MAX), min(size, TAIL_BYTES_MAX))
    device, inode = content.identity
    return FileMark(device, inode, len(head), sha256(head), size, len(tail), sha256(tail) if tail else "", -1)


def _reversed_number(name: str) -> tuple[int, str]:
    """Return the sort key for files with equal modification times: app.log.2 precedes app.log.1, and earlier dates
    precede later dates."""
    number = re.search(r"[.-](\d{1,4})(?:\.[A-Za-z]\w*)?$", name)
    return (-int(number[1]) if number else 0), name
