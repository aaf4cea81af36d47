"""Following files as `tail -F` does: nothing twice, nothing left out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from barnabas.cli.tailing import RETIRED_IDLE_MS, FileMark, FollowedPath
from barnabas.clock import GuardedClock, ManualClock


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def append(path: Path, text: str, clock: ManualClock | None = None) -> None:
    with path.open("a") as file:
        file.write(text)
    if clock is not None:
        os.utime(path, ns=(clock.time_ms() * 1_000_000,) * 2)


def follow(path: Path, clock: ManualClock, marks: Iterable[FileMark] = ()) -> FollowedPath:
    return FollowedPath(path, marks, clock)


def new_lines(followed: FollowedPath) -> list[str]:
    return [line.decode() for piece in followed.read_all() for line in piece.lines]


def last_mark(followed: FollowedPath) -> FileMark:
    return list(followed.read_all())[-1].mark


def test_growth_is_read_from_where_the_last_read_stopped(log: Path, clock: ManualClock) -> None:
    append(log, "1\n2\n")
    followed = follow(log, clock)
    assert new_lines(followed) == ["1", "2"]
    assert new_lines(followed) == []
    append(log, "3\n")
    assert new_lines(followed) == ["3"]


def test_unfinished_line_waits_for_its_end(log: Path, clock: ManualClock) -> None:
    append(log, "whole\nha")
    followed = follow(log, clock)
    assert new_lines(followed) == ["whole"]
    append(log, "lf\n")
    assert new_lines(followed) == ["half"]


def test_finish_gives_the_last_line_without_line_feed(log: Path, clock: ManualClock) -> None:
    append(log, "whole\nlast")
    followed = follow(log, clock)
    assert new_lines(followed) == ["whole"]
    (piece,) = followed.finish()
    assert (piece.lines, piece.mark.position) == ([b"last"], 10)


def test_rotation_reads_the_old_file_to_its_end_and_then_the_new_one(log: Path, clock: ManualClock) -> None:
    append(log, "1\n", clock)
    followed = follow(log, clock)
    assert new_lines(followed) == ["1"]
    append(log, "2\n", clock)
    log.rename(log.with_suffix(".log.1"))
    append(log, "3\n", clock)
    assert new_lines(followed) == ["2", "3"]


def test_writer_that_has_not_noticed_the_rotation_is_still_heard(log: Path, clock: ManualClock) -> None:
    append(log, "1\n", clock)
    followed = follow(log, clock)
    assert new_lines(followed) == ["1"]
    rotated = log.rename(log.with_suffix(".log.1"))
    append(log, "3\n", clock)
    assert new_lines(followed) == ["3"]
    append(rotated, "2\n", clock)
    assert new_lines(followed) == ["2"]


def test_rotated_file_is_let_go_once_nobody_writes_to_it(log: Path, clock: ManualClock) -> None:
    append(log, "1\nrest", clock)
    followed = follow(log, clock)
    new_lines(followed)
    log.rename(log.with_suffix(".log.1"))
    append(log, "2\n", clock)
    assert new_lines(followed) == ["2"]
    assert followed.done_marks == []
    clock.advance(RETIRED_IDLE_MS / 1000 + 1)
    assert new_lines(followed) == ["rest"]
    assert [mark.position for mark in followed.done_marks] == [6]


def test_rotated_file_is_kept_while_the_clock_is_in_doubt(log: Path, clock: ManualClock) -> None:
    append(log, "1\n", clock)
    followed = FollowedPath(log, [], GuardedClock(clock))
    new_lines(followed)
    rotated = log.rename(log.with_suffix(".log.1"))
    append(log, "3\n", clock)
    assert new_lines(followed) == ["3"]
    clock.jump(365 * 86_400)
    assert new_lines(followed) == []
    clock.jump(-365 * 86_400)
    append(rotated, "2\n", clock)
    assert new_lines(followed) == ["2"]


def test_truncated_file_is_read_from_its_beginning(log: Path, clock: ManualClock) -> None:
    append(log, "1\n2\n3\nunfinished")
    followed = follow(log, clock)
    assert new_lines(followed) == ["1", "2", "3"]
    log.write_text("4\n")
    assert new_lines(followed) == ["4"]


def test_file_that_does_not_exist_yet_is_read_when_it_does(log: Path, clock: ManualClock) -> None:
    followed = follow(log, clock)
    assert new_lines(followed) == []
    append(log, "1\n")
    assert new_lines(followed) == ["1"]


def test_next_run_goes_on_at_the_mark(log: Path, clock: ManualClock) -> None:
    append(log, "1\n2\n")
    mark = last_mark(follow(log, clock))
    append(log, "3\n")
    assert new_lines(follow(log, clock, [mark])) == ["3"]


def test_next_run_finds_the_rest_of_a_file_that_was_rotated_meanwhile(log: Path, clock: ManualClock) -> None:
    append(log, "1\n", clock)
    mark = last_mark(follow(log, clock))
    append(log, "2\n", clock)
    log.rename(log.with_suffix(".log.1"))
    append(log, "3\n", clock)
    assert new_lines(follow(log, clock, [mark])) == ["2", "3"]


def test_next_run_finds_files_that_came_and_went_meanwhile(log: Path, clock: ManualClock) -> None:
    append(log, "1\n", clock)
    mark = last_mark(follow(log, clock))
    for age, text in ((2, "2\n"), (1, "3\n")):
        log.rename(log.with_suffix(f".log.{age}"))
        clock.advance(3600)
        append(log, text, clock)
    append(log.with_suffix(".log.lock"), "no log\n", clock)
    assert new_lines(follow(log, clock, [mark])) == ["2", "3"]


def test_next_run_reads_all_of_a_file_that_was_written_anew(log: Path, clock: ManualClock) -> None:
    append(log, "old 1\nold 2\n")
    mark = last_mark(follow(log, clock))
    log.write_text("new 1\nnew 2\nnew 3\n")
    followed = follow(log, clock, [mark])
    assert new_lines(followed) == ["new 1", "new 2", "new 3"]
    assert followed.lost_marks == [mark]


def test_mark_of_a_deleted_file_is_reported_as_lost(log: Path, clock: ManualClock) -> None:
    append(log, "1\n")
    mark = last_mark(follow(log, clock))
    log.unlink()
    assert follow(log, clock, [mark]).lost_marks == [mark]
