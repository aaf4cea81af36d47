"""Histories made by hand, each with one anomaly or with none; what is found is what is there, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import ApiError, BufferFullError, ClosedError, ErrorCode, TimedOutError
from barnabas.laboratory.history import Anomaly, Finding, History, Outcome, Report, Value, check, outcome_of, picture
from barnabas.laboratory.history.report import text

PLACE = ("clicks", 0)
OTHER = ("clicks", 1)


class Written:
    """A history that is written by a test, a tenth of a second for each step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.history = History(path, self.clock)

    def sent(
        self, value: Value, offset: int | None, *, process: str = "producer", place: tuple[str, int] = PLACE
    ) -> None:
        send = self.history.send(process, place, value)
        self.clock.advance(0.1)
        send.ok(offset)

    def failed(self, value: Value, outcome: Outcome, process: str = "producer") -> None:
        send = self.history.send(process, PLACE, value)
        self.clock.advance(0.1)
        send.ended(outcome, "for this reason")

    def polled(
        self,
        *records: tuple[int, Value],
        process: str = "consumer",
        place: tuple[str, int] = PLACE,
        final: bool = False,
    ) -> None:
        started = self.history.now()
        self.clock.advance(0.1)
        self.history.poll(process, started, [(place, offset, value) for offset, value in records], final=final)

    def read_at_the_end(self, *records: tuple[int, Value], place: tuple[str, int] = PLACE) -> None:
        self.polled(*records, process="end", place=place, final=True)
        self.history.read_whole(place)

    def report(self) -> Report:
        self.history.close()
        return check(self.path)

    def only(self, anomaly: Anomaly) -> Finding:
        """Return the one finding that there is, and check that it is this anomaly."""
        (finding,) = self.report().findings
        assert finding.anomaly is anomaly
        return finding

    def found(self) -> dict[Anomaly, int]:
        return {finding.anomaly: finding.count for finding in self.report().findings}


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    written = Written(tmp_path / "history")
    yield written
    written.history.close()


def whats(finding: Finding) -> list[str]:
    return [moment.what for moment in finding.timeline]


def test_a_log_that_keeps_its_promises_is_clean(written: Written) -> None:
    values: Sequence[Value] = [1, "two", b"three"]
    for offset, value in enumerate(values):
        written.sent(value, offset)
    written.failed(4, Outcome.FAIL)
    written.failed(5, Outcome.INFO)  # and it is there
    written.failed(6, Outcome.INFO)  # and it is not
    written.polled((0, 1), (1, "two"))
    written.polled((2, b"three"), (3, 5))
    written.sent(7, 0, place=OTHER)
    written.sent(8, None, place=OTHER)
    written.read_at_the_end((0, 1), (1, "two"), (2, b"three"), (3, 5))
    written.read_at_the_end((0, 7), (1, 8), place=OTHER)
    report = written.report()
    assert report.ok
    assert report.sends == {Outcome.OK: 5, Outcome.FAIL: 1, Outcome.INFO: 2}
    assert (report.polls, report.records) == (4, 10)


def test_two_values_at_one_offset(written: Written) -> None:
    written.sent("a", 0)
    written.failed("b", Outcome.INFO)
    written.polled((0, "a"))
    written.polled((0, "b"), process="other")
    written.read_at_the_end((0, "a"))
    found = written.found()
    assert found[Anomaly.INCONSISTENT_OFFSET] == 1
    assert found == {Anomaly.INCONSISTENT_OFFSET: 1, Anomaly.UNSEEN: 1}  # what one has read is gone at the end


def test_acknowledgement_and_read_that_do_not_agree_on_an_offset(written: Written) -> None:
    written.sent("a", 0)
    written.sent("b", 0, process="other")
    written.read_at_the_end((0, "a"), (1, "b"))
    assert written.found() == {Anomaly.INCONSISTENT_OFFSET: 1, Anomaly.DUPLICATE: 1}


def test_one_value_twice(written: Written) -> None:
    written.sent("a", 0)
    written.sent("b", 1)
    written.read_at_the_end((0, "a"), (1, "b"), (2, "a"))
    finding = written.only(Anomaly.DUPLICATE)
    assert finding.example == "'a' is there 2 times, in clicks-0 at offset 0 and in clicks-0 at 2"
    assert whats(finding) == [
        "sends 'a' to clicks-0: ok, offset 0",
        "reads 'a' at the end from clicks-0 at offset 0",
        "reads 'a' at the end from clicks-0 at offset 2",
    ]


def test_one_value_in_two_places(written: Written) -> None:
    written.sent("a", 0)
    written.read_at_the_end((0, "a"))
    written.read_at_the_end((5, "a"), place=OTHER)
    assert "clicks-0 at offset 0 and in clicks-1 at 5" in written.only(Anomaly.DUPLICATE).example


def test_refused_value_that_is_read(written: Written) -> None:
    written.failed("a", Outcome.FAIL)
    written.read_at_the_end((0, "a"))
    finding = written.only(Anomaly.ABORTED_READ)
    assert "the send of 'a' failed (for this reason)" in finding.example


def test_acknowledged_value_that_nobody_ever_reads(written: Written) -> None:
    written.sent("a", 0)
    written.sent("b", 1)
    written.sent("c", 2)
    written.polled((0, "a"))
    written.history.moved("consumer")
    written.polled((2, "c"))
    finding = written.only(Anomaly.LOST_WRITE)
    assert (
        finding.example == "'b' was acknowledged in clicks-0 at offset 1, and nobody read it, though offset 2 was read"
    )


def test_value_after_the_last_that_was_read_may_still_be_on_its_way(written: Written) -> None:
    written.sent("a", 0)
    written.sent("b", 1)
    written.polled((0, "a"))
    report = written.report()
    assert not report.findings
    assert report.unread == ("clicks-0",)
    assert not report.ok  # nobody looked whether it is there at the end
    assert "never read to the end: clicks-0" in text(report)


def test_what_is_not_there_at_the_end(written: Written) -> None:
    written.sent("a", 0)
    written.sent("b", 1)
    written.sent("c", None)
    written.read_at_the_end((0, "a"))
    finding = written.only(Anomaly.UNSEEN)
    assert finding.count == 2
    assert finding.example.startswith("'b' was acknowledged in clicks-0 at offset 1") or "'c'" in finding.example


def test_what_was_read_and_not_acknowledged_has_to_stay_as_well(written: Written) -> None:
    written.failed("a", Outcome.INFO)
    written.sent("b", 1)
    written.polled((0, "a"))
    written.read_at_the_end((1, "b"))
    finding = written.only(Anomaly.UNSEEN)
    assert finding.example == "'a' was read in clicks-0 at offset 0, and was not there when all was read at the end"


def test_what_was_deleted_on_purpose_is_not_missed(written: Written) -> None:
    for offset in range(4):
        written.sent(offset, offset)
    written.polled((0, 0))
    written.history.deleted(PLACE, 2)
    written.polled((2, 2), (3, 3))
    written.read_at_the_end((2, 2), (3, 3))
    assert written.report().ok


@pytest.mark.parametrize("polls", [[[0, 2]], [[0], [2]]], ids=["within one poll", "between polls"])
def test_reader_that_misses_a_record(written: Written, polls: list[list[int]]) -> None:
    for offset in range(3):
        written.sent(f"value {offset}", offset)
    for offsets in polls:
        written.polled(*[(offset, f"value {offset}") for offset in offsets])
    written.read_at_the_end(*[(offset, f"value {offset}") for offset in range(3)])
    finding = written.only(Anomaly.POLL_SKIP)
    assert finding.example == "consumer went from offset 0 to 2 of clicks-0 and missed 'value 1' at 1"


def test_gaps_that_are_gaps_for_everybody_are_no_skips(written: Written) -> None:
    written.sent("a", 0)
    written.sent("b", 7)
    written.polled((0, "a"), (7, "b"))
    written.read_at_the_end((0, "a"), (7, "b"))
    assert written.report().ok


@pytest.mark.parametrize("polls", [[[1, 0]], [[1], [0]], [[0, 1, 1]]], ids=["within", "between", "again"])
def test_reader_that_goes_back(written: Written, polls: list[list[int]]) -> None:
    written.sent(0, 0)
    written.sent(1, 1)
    for offsets in polls:
        written.polled(*[(offset, offset) for offset in offsets])
    written.read_at_the_end((0, 0), (1, 1))
    assert "consumer read offset" in written.only(Anomaly.NON_MONOTONIC_POLL).example


def test_reader_that_was_moved_may_go_anywhere(written: Written) -> None:
    for offset in range(4):
        written.sent(offset, offset)
    written.polled((0, 0), (1, 1))
    written.history.moved("consumer")
    written.polled((3, 3))
    written.history.moved("consumer")
    written.polled((0, 0))
    written.read_at_the_end(*[(offset, offset) for offset in range(4)])
    assert written.report().ok


def test_moving_one_reader_says_nothing_of_another(written: Written) -> None:
    written.sent(0, 0)
    written.sent(1, 1)
    written.polled((1, 1))
    written.history.moved("another")
    written.polled((0, 0))
    written.read_at_the_end((0, 0), (1, 1))
    assert written.found() == {Anomaly.NON_MONOTONIC_POLL: 1}


def test_sends_that_change_places(written: Written) -> None:
    written.sent("a", 1)
    written.sent("b", 0)
    written.sent("c", 5, process="another")
    written.sent("d", 3, process="yet another")
    written.read_at_the_end((0, "b"), (1, "a"), (3, "d"), (5, "c"))
    finding = written.only(Anomaly.NON_MONOTONIC_SEND)
    assert finding.example == "producer sent 'b' (offset 0) after 'a' (offset 1) to clicks-0"


def test_sends_that_have_not_ended_are_those_of_which_nobody_knows(written: Written) -> None:
    written.history.send("producer", PLACE, "a")
    assert written.report().sends[Outcome.INFO] == 1


def test_shortest_case_is_told_and_all_are_counted(written: Written) -> None:
    for number in range(3):
        written.sent(number, number)
    for process in range(5):  # the case of 0 takes more to tell
        written.polled((0, 0), process=f"consumer {process}")
    written.read_at_the_end((0, 0), (1, 1), (2, 2), (3, 0), (4, 1), (5, 2))
    finding = written.only(Anomaly.DUPLICATE)
    assert finding.count == 3
    assert finding.example.startswith(("1 is there", "2 is there"))


def test_events_before_its_end_stand_in_the_timeline(written: Written) -> None:
    written.history.event("broker 1 is killed")
    written.history.event("another place's leader", OTHER)
    written.sent("a", 0)
    written.history.event("leader is 2", PLACE)
    written.read_at_the_end((0, "a"), (1, "a"))
    written.clock.advance(1)
    written.history.event("broker 1 is back")
    finding = written.only(Anomaly.DUPLICATE)
    events = [moment.what for moment in finding.timeline if not moment.process]
    assert events == ["broker 1 is killed", "clicks-0: leader is 2"]
    assert [moment.started for moment in finding.timeline] == sorted(moment.started for moment in finding.timeline)


def test_report_and_picture_tell_the_example(written: Written) -> None:
    written.history.event("a <broker> & its leader")
    written.sent("a<b", 0)
    written.read_at_the_end((0, "a<b"), (1, "a<b"))
    report = written.report()
    assert "duplicate, once: 'a<b' is there 2 times" in text(report)
    assert "  * " in text(report)
    drawn = ElementTree.fromstring(picture(report))
    words = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "producer" in words
    assert "a <broker> & its leader" in words
    assert any("sends 'a<b' to clicks-0" in word for word in words if word)


def test_picture_of_nothing_says_so(written: Written) -> None:
    assert "no anomaly in 0 sends" in picture(written.report())


def test_history_is_checked_from_the_command_line(written: Written, tmp_path: Path) -> None:
    written.sent("a", 0)
    written.read_at_the_end((0, "a"), (1, "a"))
    written.history.close()
    command = [sys.executable, "-m", "barnabas.laboratory.history"]
    drawing = tmp_path / "drawing.svg"
    found = subprocess.run([*command, written.path, "--picture", drawing], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "duplicate, once" in found.stdout
    assert drawing.read_text(encoding="utf-8").startswith("<svg")
    missing = subprocess.run([*command, tmp_path / "none"], capture_output=True, text=True, check=False)
    assert missing.returncode == 2
    assert "does not exist" in missing.stderr


def test_file_that_is_no_history_is_told(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"nothing of the kind" * 100)
    with pytest.raises(ValueError, match="is not a history"):
        check(tmp_path / "other")
    with pytest.raises(FileExistsError):
        History(tmp_path / "other")


def test_send_ends_once_and_within_the_history(written: Written) -> None:
    send = written.history.send("producer", PLACE, "a")
    send.ok(0)
    with pytest.raises(ValueError, match="ended twice"):
        send.ok(0)
    written.history.close()
    with pytest.raises(ClosedError):
        written.history.send("producer", PLACE, "b")


def test_only_refusals_say_that_nothing_is_in_the_log() -> None:
    assert outcome_of(ApiError(ErrorCode.MESSAGE_TOO_LARGE)) is Outcome.FAIL
    for error in (
        ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ApiError(ErrorCode.NOT_ENOUGH_REPLICAS),
        ApiError(ErrorCode.UNKNOWN_SERVER_ERROR),
        TimedOutError("no answer"),
        BufferFullError("full"),
    ):
        assert outcome_of(error) is Outcome.INFO
