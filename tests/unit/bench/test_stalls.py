"""Stalls that an innocent client sees: how windows of pings, endings and tables are put together."""

from __future__ import annotations

import json

import pytest

from barnabas.protocol.codec import response_frame
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from barnabas.records import read_header, read_records
from bench.figures import text_of, without_paths
from bench.segment_files import one_record_batch, write_segment
from bench.stalls.__main__ import SCENARIOS, parse
from bench.stalls.connection import Deadline, DeadlineError, first_error, summary_of
from bench.stalls.pings import nearest_rank, summarise
from bench.stalls.produce_frames import batch_of
from bench.stalls.report import Figures, Run, lines, middle


def run(worst_ms: float, ended: str = "answered, 5 B") -> Run:
    return Run(summarise([1.0, worst_ms]), summarise([2.0]), ended, seconds=1.5, peak_mib=40.0)


def metadata(error_code: int) -> MetadataResponse:
    topics = [MetadataResponseTopic(error_code=code, name="clicks", partitions=[]) for code in (0, error_code)]
    return MetadataResponse(brokers=[], topics=topics)


def test_pings_without_an_answer_count_as_long_as_they_waited() -> None:
    pings = summarise([1.0] * 300, [500.0, 495.0])
    assert (pings.count, pings.worst_ms, pings.answered_all) == (302, 500.0, False)


def test_one_stall_of_many_pings_shows_in_the_99th_percentile() -> None:
    assert summarise([1.0] * 95 + [100.0] * 5).p99_ms == 100.0
    assert summarise([1.0] * 995 + [100.0] * 5).p99_ms == 1.0


def test_a_window_without_pings_has_no_stall() -> None:
    assert summarise([]).worst_ms == 0.0


def test_the_nearest_rank_is_a_value_that_was_measured() -> None:
    assert [nearest_rank([1.0, 2.0, 3.0], share) for share in (0.0, 0.34, 1.0)] == [1.0, 2.0, 3.0]


def test_of_several_runs_the_table_has_the_middle_one_and_the_spread() -> None:
    runs = [run(30.0, "fast"), run(1000.0, "slow"), run(20.0, "faster")]
    assert middle(runs).ended == "fast"
    *_, row = lines([Figures("name", "3,000 rolls", runs)])
    assert row == "| 3,000 rolls | fast (1.50 s) | 30.0 (20.0 to 1,000.0) | 30.0 | 2.0 | 40 |"


def test_a_scenario_that_could_not_be_prepared_says_why() -> None:
    *_, row = lines([Figures("name", "3,000 rolls", [], "RuntimeError: no")])
    assert row.startswith("| 3,000 rolls | not measured: RuntimeError: no |")


def test_the_first_error_of_an_answer_is_found_however_deep_it_is() -> None:
    assert first_error(metadata(3)) == 3
    assert first_error(metadata(0)) == 0


def test_an_answer_is_told_by_its_size_and_its_error() -> None:
    answer = b"".join(bytes(memoryview(chunk)) for chunk in response_frame(metadata(3), 7, 1))[4:]  # type: ignore[arg-type]
    assert summary_of(answer, MetadataResponse, 7) == f"answered, {len(answer)} B, UNKNOWN_TOPIC_OR_PARTITION"
    assert summary_of(bytes(5_000_000), MetadataResponse, 7) == "answered, 5.0 MB"


def test_no_time_is_left_behind_a_deadline() -> None:
    with pytest.raises(DeadlineError):
        Deadline(-1.0).left_s()
    assert Deadline(60.0).left_s() > 0


def test_scenarios_can_be_chosen_by_name_and_unknown_ones_are_refused() -> None:
    assert parse(["roll-often"]).scenarios == ["roll-often"]
    with pytest.raises(SystemExit):
        parse(["no-such-scenario"])
    assert all(name == scenario.name for name, scenario in SCENARIOS.items())


@pytest.mark.parametrize("size", [1, 1_000, 1_000_000])
@pytest.mark.parametrize("value", [b"", b"x" * 100])
def test_a_batch_is_as_large_as_asked_for_and_no_larger(size: int, value: bytes) -> None:
    batch = batch_of(size, value, timestamp_ms=0)
    count = read_header(batch).record_count
    assert count == 1 or 0.6 * size < len(batch) <= size
    assert [record.value for record in read_records(batch, "clicks", 0)] == [value] * count


def test_segments_hold_sound_batches_with_offsets_that_rise(tmp_path) -> None:  # type: ignore[no-untyped-def]
    batch = one_record_batch(timestamp_ms=5)
    assert write_segment(tmp_path, 100, batch, 3) == 103
    content = (tmp_path / "00000000000000000100.log").read_bytes()
    records = list(read_records(content, "clicks", 0, check_crc=True))
    assert [(record.offset, record.timestamp_ms) for record in records] == [(100, 5), (101, 5), (102, 5)]


def test_figures_are_kept_a_line_each() -> None:
    text = text_of({"date": "2026-11-21"}, [{"ms": [1.23456789]}, {"ms": []}])
    assert json.loads(text) == {"date": "2026-11-21", "rows": [{"ms": [1.2346]}, {"ms": []}]}
    assert len(text.splitlines()) == 4


def test_the_command_that_is_kept_names_no_places_of_one_machine() -> None:
    arguments = ["roll-often", "--json", "figures.json", "--rounds", "3", "--folder=/data"]
    assert without_paths(arguments) == ["roll-often", "--rounds", "3"]
