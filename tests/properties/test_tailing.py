"""Whatever a log's writer and its rotation do between two looks, every line is handed out once, and in order."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.cli.tailing import FileMark, FollowedPath, Identity
from barnabas.clock import ManualClock


class RotatedLog(RuleBasedStateMachine):
    """A writer, a rotation that renames, and a reader that may stop and go on from its marks."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.log = Path(self.folder.name) / "app.log"
        self.clock = ManualClock()
        self.marks: dict[Identity, FileMark] = {}
        self.written: list[bytes] = []
        self.unfinished = b""
        self.seen: list[bytes] = []
        self.rotations = 0
        self.followed = FollowedPath(self.log, [], self.clock)

    def teardown(self) -> None:
        self.read()
        self.followed.close()
        self.folder.cleanup()
        assert self.seen == self.written

    def append(self, data: bytes) -> None:
        self.clock.advance(0.001)
        with self.log.open("ab") as file:
            file.write(data)
        os.utime(self.log, ns=(self.clock.time_ms() * 1_000_000,) * 2)

    @rule(lines=st.lists(st.binary(max_size=8).filter(lambda line: b"\n" not in line), min_size=1, max_size=5))
    def write_lines(self, lines: list[bytes]) -> None:
        self.append(b"".join(line + b"\n" for line in lines))
        self.written += [self.unfinished + lines[0], *lines[1:]]
        self.unfinished = b""

    @rule(part=st.binary(min_size=1, max_size=8).filter(lambda line: b"\n" not in line))
    def write_part_of_a_line(self, part: bytes) -> None:
        self.append(part)
        self.unfinished += part

    @rule()
    def rotate(self) -> None:
        """Rename the log, once a line of it was seen: there is no mark to go on from before that."""
        if self.marks and self.log.exists() and not self.unfinished:
            self.rotations += 1
            self.log.rename(f"{self.log}.{self.rotations:04}")

    @rule()
    def read(self) -> None:
        for piece in self.followed.read_all():
            self.seen += piece.lines
            self.marks[piece.mark.identity] = piece.mark
        for mark in self.followed.done_marks:
            self.marks.pop(mark.identity, None)
        self.followed.done_marks.clear()

    @rule(seconds=st.sampled_from([1, 59, 61]))
    def time_passes(self, seconds: int) -> None:
        self.read()
        self.clock.advance(seconds)

    @rule()
    def read_and_start_again(self) -> None:
        """Stop after a read: what is rotated away before the next start is found by its mark."""
        self.read()
        self.followed.close()
        self.followed = FollowedPath(self.log, self.marks.values(), self.clock)
        assert self.followed.lost_marks == []

    @invariant()
    def nothing_is_seen_that_was_not_written(self) -> None:
        assert self.seen == self.written[: len(self.seen)]


TestRotatedLog = RotatedLog.TestCase
