"""Whatever a log's writer and its rotation do, each line is handed out once, or the file is named that lost lines.

The reader follows, pauses between two reads while several things happen, or is down and goes on from its state.
"""

from __future__ import annotations

import bz2
import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.cli.file_tail import FollowedPath
from barnabas.cli.ship_state import ShipState
from barnabas.clock import ManualClock
from tests.support.searches import examples

PADDINGS = st.lists(st.sampled_from([0, 3, 300]), min_size=1, max_size=4)
"""The lengths of lines: a fingerprint covers one line, several, or a part of one."""


class ShippedLog(RuleBasedStateMachine):
    """A writer, its rotations, and a reader."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.log = Path(self.folder.name) / "app.log"
        self.clock = ManualClock()
        self.state = ShipState(Path(self.folder.name) / "state", "logs", "id", self.log)
        self.line_count = 0
        self.written: list[bytes] = []
        self.unfinished = b""
        self.in_place: dict[Path, list[bytes]] = {self.log: []}
        self.at_risk: set[bytes] = set()
        self.never_met: set[bytes] = set()
        """Lines of files that were truncated before ship noted a line of them: nothing shows that they were there."""
        self.seen: list[bytes] = []
        self.may_repeat: set[bytes] = set()
        """Lines that were read when the reader was killed, before it noted them."""
        self.reports: list[str] = []
        self.followed: FollowedPath | None = self.start()

    def start(self) -> FollowedPath:
        followed = FollowedPath(
            self.log,
            self.state.marks,
            self.clock,
            known=self.state.known,
            report=self.reports.append,
            saved_at_ns=self.state.saved_at_ns,
        )
        for mark in followed.lost_marks:
            self.state.forget(mark)
            self.reports.append(f"{self.log}: lost")
        self.state.note_known(followed.known_marks)
        return followed

    def teardown(self) -> None:
        if self.followed is None:
            self.start_again()
        self.read()
        self.start_again()
        self.read()
        self.no_line_is_seen_twice_or_torn()
        self.close()
        self.folder.cleanup()

    def check_nothing_is_missing(self) -> None:
        missing = set(self.written) - set(self.seen)
        assert missing <= self.at_risk, f"lost without a cause: {sorted(missing - self.at_risk)}"
        assert not missing - self.never_met or self.reports, f"lost without a report: {sorted(missing)}"

    def has_noted_any(self, lines: set[bytes]) -> bool:
        """Return whether ship has noted that it read lines of the file that has the name, and some of these lines.

        A line that only a killed ship has read does not count. Nor does a line of another file that was copied.
        """
        inode = self.log.stat().st_ino
        is_noted = any(mark.inode == inode and mark.position for mark in self.state.marks)
        noted = {line for line in lines if line not in self.may_repeat or self.seen.count(line) > 1}
        return is_noted and not noted.isdisjoint(self.seen)

    def append(self, path: Path, data: bytes) -> None:
        self.clock.advance(0.001)
        with path.open("ab") as file:
            file.write(data)
        self.touch(path)

    def touch(self, path: Path) -> None:
        os.utime(path, ns=(self.clock.time_ms() * 1_000_000,) * 2)

    def new_lines(self, paddings: list[int]) -> list[bytes]:
        first = self.line_count
        self.line_count += len(paddings)
        return [b"%06d " % (first + at) + b"x" * padding for at, padding in enumerate(paddings)]

    @rule(paddings=PADDINGS)
    def write_lines(self, paddings: list[int]) -> None:
        lines = self.new_lines(paddings)
        self.append(self.log, b"".join(line + b"\n" for line in lines))
        whole = [self.unfinished + lines[0], *lines[1:]]
        self.unfinished = b""
        self.written += whole
        self.in_place.setdefault(self.log, []).extend(whole)

    @rule(padding=st.sampled_from([0, 300]))
    def write_part_of_a_line(self, padding: int) -> None:
        (part,) = self.new_lines([padding])
        self.append(self.log, part)
        self.unfinished += part

    def shift(self) -> bool:
        """Give app.log.1 the name app.log.2 and so on, as logrotate does."""
        if not self.log.exists() or self.unfinished:
            return False
        rotated = [path for path in self.in_place if path != self.log]
        for path in sorted(rotated, key=_age, reverse=True):
            target = self.log.with_name(
                f"app.log.{_age(path) + 1}{path.suffix if not path.suffix[1:].isdigit() else ''}"
            )
            path.rename(target)
            self.in_place[target] = self.in_place.pop(path)
        return True

    @rule()
    def rename(self) -> None:
        if self.shift():
            target = self.log.with_name("app.log.1")
            self.log.rename(target)
            self.in_place[target] = self.in_place.pop(self.log, [])

    @rule(paddings=PADDINGS | st.just([]))
    def copy_and_truncate(self, paddings: list[int]) -> None:
        if self.shift():
            target = self.log.with_name("app.log.1")
            shutil.copyfile(self.log, target)
            self.touch(target)
            os.truncate(self.log, 0)
            self.touch(self.log)
            self.in_place[target] = self.in_place.pop(self.log, [])
            if paddings:
                self.write_lines(paddings)

    @rule(paddings=PADDINGS | st.just([]))
    def truncate(self, paddings: list[int]) -> None:
        """Truncate without a copy: what was not read is lost, and has to be reported."""
        if self.log.exists() and not self.unfinished:
            lines = set(self.in_place.pop(self.log, []))
            self.at_risk |= lines
            self.never_met |= set() if self.has_noted_any(lines) else lines
            os.truncate(self.log, 0)
            if paddings:
                self.write_lines(paddings)

    @rule(opener=st.sampled_from([gzip.open, bz2.open]), draw=st.integers(0, 10))
    def compress(self, opener: Callable[..., gzip.GzipFile], draw: int) -> None:
        plain = [path for path in self.in_place if path.suffix[1:].isdigit()]
        if plain:
            path = plain[draw % len(plain)]
            target = path.with_name(path.name + (".gz" if opener is gzip.open else ".bz2"))
            with path.open("rb") as source, opener(target, "wb") as packed:
                shutil.copyfileobj(source, packed)
            shutil.copystat(path, target)
            path.unlink()
            self.in_place[target] = self.in_place.pop(path)

    @rule()
    def delete_the_oldest(self) -> None:
        rotated = [path for path in self.in_place if path != self.log]
        if rotated:
            oldest = max(rotated, key=_age)
            self.at_risk |= set(self.in_place.pop(oldest))
            oldest.unlink()
            self.reports.append("deleted by the test")

    @rule()
    def rewrite(self) -> None:
        """Write the same bytes and more under a new inode, as editors and `rsync` do."""
        if self.log.exists() and not self.unfinished:
            beside = self.log.with_name("beside")
            shutil.copyfile(self.log, beside)
            beside.replace(self.log)
            self.touch(self.log)

    def close(self) -> None:
        if self.followed is not None:
            self.followed.close()
            self.followed = None

    @rule()
    def read(self) -> None:
        if self.followed is None:
            return
        for piece in self.followed.read_all():
            self.seen += piece.lines
            self.state.note_piece(piece)
        for mark, replaces in self.followed.take_copies():
            self.state.note(mark, replaces)
        for mark in self.followed.done_marks:
            self.state.forget(mark)
        self.followed.done_marks.clear()
        self.state.note_known(self.followed.known_marks)
        self.check_nothing_is_missing()

    @rule(noted=st.integers(0, 3))
    def be_killed(self, noted: int) -> None:
        """Read, note only the first pieces, and start again."""
        if self.followed is None:
            return
        for at, piece in enumerate(self.followed.read_all()):
            self.seen += piece.lines
            if at < noted:
                self.state.note_piece(piece)
            else:
                self.may_repeat |= set(piece.lines)
        self.close()
        self.followed = self.start()

    @rule(seconds=st.sampled_from([1, 61]))
    def time_passes(self, seconds: int) -> None:
        self.read()
        self.clock.advance(seconds)

    @rule()
    def go_down(self) -> None:
        """Stop after a read; the next rules happen while nobody reads."""
        self.read()
        self.close()

    @rule()
    def start_again(self) -> None:
        self.read()
        self.close()
        self.followed = self.start()

    @invariant()
    def no_line_is_seen_twice_or_torn(self) -> None:
        repeated = [line for line in self.seen if line not in self.may_repeat]
        assert len(repeated) == len(set(repeated)), "twice"
        assert set(self.seen) <= set(self.written), "torn"


def _age(path: Path) -> int:
    return int(path.name.split(".")[2])


ShippedLog.TestCase.settings = hypothesis.settings(
    max_examples=examples(100), stateful_step_count=25, report_multiple_bugs=False
)
TestShippedLog = ShippedLog.TestCase


@pytest.mark.parametrize("after", [[0], []])
def test_file_that_was_empty_loses_no_line_to_two_rotations(after: list[int]) -> None:
    log = ShippedLog()
    log.write_lines([0])
    log.truncate([])
    log.read()
    log.copy_and_truncate([0])
    log.copy_and_truncate(after)
    log.teardown()
    assert log.seen == [b"000001 ", b"000002 "][: 1 + len(after)]


def test_copy_with_the_inode_of_a_deleted_file_gives_no_line_twice() -> None:
    """The file system may give a copy the inode of a file that was read to its end."""
    log = ShippedLog()
    log.write_lines([0])
    log.rewrite()
    log.time_passes(61)
    log.rewrite()
    log.rewrite()
    log.read()
    log.write_lines([0])
    log.rewrite()
    log.copy_and_truncate([])
    log.read()
    log.teardown()


def test_copy_that_begins_with_an_unread_deleted_file_gives_no_line_twice() -> None:
    log = ShippedLog()
    log.write_lines([0])
    log.copy_and_truncate([])
    log.read()
    log.write_lines([0])
    log.rewrite()
    log.write_lines([0])
    log.copy_and_truncate([])
    log.read()
    assert log.seen == [b"000000 ", b"000001 ", b"000002 "]
    log.teardown()


@pytest.mark.parametrize("after", [[0], []])
def test_copy_of_the_current_file_with_the_inode_of_a_deleted_one_gives_no_line_twice(after: list[int]) -> None:
    log = ShippedLog()
    log.write_lines([0])
    log.be_killed(noted=1)
    log.rewrite()
    log.time_passes(61)
    log.write_lines([0])
    log.read()
    log.copy_and_truncate(after)
    log.time_passes(61)
    log.start_again()
    log.go_down()
    log.teardown()
