"""Following files as `tail -F` does: nothing twice, nothing left out."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import cramjam
import pytest

from barnabas.cli.file_content import PlainContent
from barnabas.cli.file_marks import FileMark
from barnabas.cli.file_tail import RETIRED_IDLE_MS, FollowedPath
from barnabas.clock import GuardedClock, ManualClock


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def reports() -> list[str]:
    return []


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


@pytest.mark.parametrize("is_down", [False, True])
@pytest.mark.parametrize("pattern", ["app.log.{}", "app-{}.log"])
def test_symbolic_link_to_the_newest_file_is_followed(
    log: Path, clock: ManualClock, reports: list[str], pattern: str, is_down: bool
) -> None:
    append(first := log.with_name(pattern.format(20240101)), "1\n", clock)
    log.symlink_to(first)
    followed = FollowedPath(log, [], clock, report=reports.append)
    (piece,) = followed.read_all()
    append(first, "2\n", clock)
    append(second := log.with_name(pattern.format(20240102)), "3\n", clock)
    log.unlink()
    log.symlink_to(second)
    if is_down:
        followed = FollowedPath(log, [piece.mark], clock, known=followed.known_marks, report=reports.append)
    assert new_lines(followed) == ["2", "3"]
    assert reports == []


# --- one rule identifies files -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["new 1\nnew 2\nnew 3\n", "new 1\nnew 2\n", "other\n"])
def test_truncation_is_noticed_whatever_the_size_is_at_the_next_look(
    log: Path, clock: ManualClock, reports: list[str], text: str
) -> None:
    append(log, "old 1\nold 2\n")
    followed = FollowedPath(log, [], clock, report=reports.append)
    new_lines(followed)
    log.write_text(text)
    assert new_lines(followed) == text.splitlines()
    (report,) = reports
    assert str(log) in report
    assert "truncated or overwritten after byte 12" in report


def test_truncation_between_the_check_and_the_read_hands_out_no_torn_line(
    log: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, "old 1\nold 2\n")
    followed = follow(log, clock)
    new_lines(followed)
    append(log, "old 3\n")
    read_some = PlainContent.read_some

    def truncate_first(content: PlainContent, position: int, count: int) -> bytes:
        monkeypatch.setattr(PlainContent, "read_some", read_some)
        log.write_text("a new line that is longer than all old ones\n")
        return read_some(content, position, count)

    monkeypatch.setattr(PlainContent, "read_some", truncate_first)
    assert new_lines(followed) == ["a new line that is longer than all old ones"]


@pytest.mark.parametrize("is_down", [False, True])
def test_rest_of_a_truncated_file_is_read_from_its_copy(
    log: Path, clock: ManualClock, reports: list[str], is_down: bool
) -> None:
    append(log, "1\n", clock)
    followed = FollowedPath(log, [], clock, report=reports.append)
    (piece,) = followed.read_all()
    append(log, "2\n", clock)
    shutil.copy(log, log.with_suffix(".log.1"))
    log.write_text("a line of the new file\n")
    if is_down:
        followed = FollowedPath(log, [piece.mark], clock, known=[], report=reports.append)
    assert new_lines(followed) == ["2", "a line of the new file"]
    assert reports == []


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst", "lz4"])
def test_next_run_reads_on_in_a_compressed_file(log: Path, clock: ManualClock, suffix: str) -> None:
    append(log, "1\n2\n", clock)
    mark = last_mark(follow(log, clock))
    append(log, "3\n", clock)
    compress(log.rename(f"{log}.2"), suffix)
    append(log, "4\n", clock)
    compress(log.rename(f"{log}.1"), suffix)
    append(log, "5\n", clock)
    assert new_lines(FollowedPath(log, [mark], clock, known=[])) == ["3", "4", "5"]


def test_file_that_was_rotated_while_ship_was_down_is_read_when_its_mark_is_lost(
    log: Path, clock: ManualClock, reports: list[str]
) -> None:
    append(log, "1\n", clock)
    mark = last_mark(follow(log, clock))
    log.unlink()
    append(log, "2\n", clock)
    log.rename(f"{log}.1")
    append(log, "3\n", clock)
    followed = FollowedPath(log, [mark], clock, known=[], report=reports.append)
    assert followed.lost_marks == [mark]
    assert new_lines(followed) == ["2", "3"]


def test_files_of_before_the_first_run_are_not_read_under_any_later_name(log: Path, clock: ManualClock) -> None:
    append(log.with_suffix(".log.1"), "before\n", clock)
    append(log, "1\n", clock)
    first = FollowedPath(log, [], clock)
    (piece,) = first.read_all()
    log.with_suffix(".log.1").rename(f"{log}.2")
    compress(Path(f"{log}.2"), "gz")
    log.rename(f"{log}.1")
    append(log, "2\n", clock)
    assert new_lines(first) == ["2"]
    assert new_lines(FollowedPath(log, [piece.mark], clock, known=first.known_marks)) == ["2"]


def test_state_of_an_earlier_version_takes_files_older_than_it_as_known(log: Path, clock: ManualClock) -> None:
    append(log.with_suffix(".log.2"), "before\n", clock)
    append(log, "1\n", clock)
    mark = last_mark(follow(log, clock))
    old = FileMark(mark.device, mark.inode, mark.head_bytes, mark.head_sha256, mark.position)
    saved_at_ns = clock.time_ms() * 1_000_000
    clock.advance(1)
    append(log, "2\n", clock)
    log.rename(f"{log}.1")
    append(log, "3\n", clock)
    assert new_lines(FollowedPath(log, [old], clock, saved_at_ns=saved_at_ns)) == ["2", "3"]


@pytest.mark.parametrize("name", ["app.log.bak", "app-20240101.log", "app.log.save"])
def test_new_file_beside_the_path_that_is_not_read_is_named_once(
    log: Path, clock: ManualClock, reports: list[str], name: str
) -> None:
    append(log, "1\n", clock)
    followed = FollowedPath(log, [], clock, report=reports.append)
    new_lines(followed)
    append(log.with_name(name), "what it is\n", clock)
    log.rename(f"{log}.1")
    append(log, "2\n", clock)
    assert new_lines(followed) == ["2"]
    assert [name in report for report in reports] == [True]


def test_late_lines_of_a_file_that_was_let_go_are_read_at_the_next_start(log: Path, clock: ManualClock) -> None:
    append(log, "1\n", clock)
    followed = follow(log, clock)
    new_lines(followed)
    rotated = log.rename(f"{log}.1")
    append(log, "2\n", clock)
    new_lines(followed)
    clock.advance(RETIRED_IDLE_MS / 1000 + 1)
    marks = [piece.mark for piece in followed.read_all()]
    append(rotated, "late\n", clock)
    assert new_lines(FollowedPath(log, marks, clock, known=followed.known_marks)) == ["late", "2"]


@pytest.mark.parametrize("suffix", ["gz", "xz", "zst"])
def test_damaged_file_is_named_and_its_first_lines_are_read(
    log: Path, clock: ManualClock, reports: list[str], suffix: str
) -> None:
    append(log, "".join(f"{os.urandom(40).hex()} {number}\n" for number in range(5000)))
    packed = compress(log, suffix)
    packed.write_bytes(packed.read_bytes()[:-2000])
    followed = FollowedPath(packed, [], clock, report=reports.append)
    lines = new_lines(followed)
    assert 0 < len(lines) < 5000
    assert new_lines(followed) == []
    assert followed.problem_count == len(reports) == 1
    assert str(packed) in reports[0]


@pytest.mark.parametrize(("head", "kind"), [(b"PK\x03\x04", "zip"), (b"\x1f\x9d\x90", "compress")])
def test_archive_that_cannot_be_unpacked_is_refused_once(
    log: Path, clock: ManualClock, reports: list[str], head: bytes, kind: str
) -> None:
    log.write_bytes(head + b"rest")
    followed = FollowedPath(log, [], clock, report=reports.append)
    assert new_lines(followed) == new_lines(followed) == []
    assert followed.problem_count == len(reports) == 1
    assert f"{log}: unsupported compression format {kind}" in reports[0]


def test_missing_file_is_reported_once(log: Path, clock: ManualClock, reports: list[str]) -> None:
    followed = FollowedPath(log, [], clock, report=reports.append)
    for _ in range(3):
        new_lines(followed)
    assert reports == [f"{log}: the file does not exist yet; waiting for it"]


def test_pieces_know_the_numbers_of_their_lines(log: Path, clock: ManualClock) -> None:
    append(log, "1\n2\n")
    followed = follow(log, clock)
    (piece,) = followed.read_all()
    assert (piece.first_line, piece.start) == (1, 0)
    append(log, "3\n")
    (piece,) = FollowedPath(log, [piece.mark], clock).read_all()
    assert (piece.first_line, piece.start) == (3, 4)


def compress(path: Path, suffix: str) -> Path:
    """Replace a file by its compressed form, with its time, as the programs of this name do."""
    codecs = {
        "gz": gzip.compress,
        "bz2": bz2.compress,
        "xz": lzma.compress,
        "zst": cramjam.zstd.compress,
        "lz4": cramjam.lz4.compress,
    }
    packed = Path(f"{path}.{suffix}")
    packed.write_bytes(bytes(codecs[suffix](path.read_bytes())))
    shutil.copystat(path, packed)
    path.unlink()
    return packed
