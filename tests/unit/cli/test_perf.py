"""`barnabas perf`: what may be asked for, and what is shown."""

from __future__ import annotations

import json
import math

import pytest

from barnabas.cli.perf_output import ProgressLine, rows_of, show_report
from barnabas.cli.table_output import plain_table
from barnabas.client.config import ConsumerConfig, ProducerConfig
from barnabas.laboratory.perf.latency_summary import NOTHING
from barnabas.laboratory.perf.meter import Measured, Sample
from barnabas.laboratory.perf.paired_runs import settings_without
from barnabas.laboratory.perf.report import Report

MEASURED = Measured(10.0, 12.0, 1_000, 50_000, 0.5, (Sample(11.0, 400, 20_000),))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["fly"], "no such command"),
        (["consume"], "missing option '-t'"),
        (["produce", "--records", "0"], "is not in the range"),
        (["produce", "--seconds", "0"], "is not in the range"),
        (["produce", "--acks", "2"], "is not one of"),
        (["produce", "--mode", "fast"], "is not one of"),
        (["produce", "--mode", "many", "--batch-records", "5"], "which --batch-records does not use"),
        (["produce", "--in-flight", "5"], "requires --batch-records"),
        (["produce", "--value-file", __file__, "--size", "10"], "leave out --size and --payload"),
        (["produce", "-c", "retention.ms"], "is not NAME=VALUE"),
        (["latency", "--size", "7"], "is not in the range"),
        (["latency", "--rate", "0"], "is not in the range"),
        (["requests", "--batch-records", "2"], "no such option"),
        (["consume", "-t", "clicks", "-g", "ctr", "--warm-up", "9"], "give only one of them"),
    ],
)
def test_wrong_usage_is_code_2_and_one_line(run, arguments: list[str], reason: str) -> None:
    outcome = run("perf", *arguments)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert reason in outcome.err


def test_no_broker_is_one_line(cluster, run) -> None:
    cluster.is_down = True
    outcome = run("perf", "latency", "-b", "localhost:1")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("barnabas: no broker responds at localhost:1 (connection refused); ")


def test_topic_that_is_missing_is_named(cluster, run) -> None:
    cluster.create("clicks")
    outcome = run("perf", "consume", "-t", "clikcs")
    assert (outcome.code, outcome.err) == (1, "barnabas: no topic 'clikcs'; did you mean 'clicks'?\n")


def report(**more) -> Report:
    about = {"topic": "clicks", "partitions": 6, "mode": "send", "acks": "all", "size": 50}
    return Report("produce", "localhost:9092", MEASURED, about, {"stored": 1_000}, **more)


def test_report_has_rates_and_says_where_it_was_made() -> None:
    figures = report().as_json()
    assert (figures["records"], figures["records_per_s"], figures["mb_per_s"]) == (1_000, 500.0, 0.025)
    assert (figures["cpu_client_s"], figures["elapsed_s"], figures["bytes"]) == (0.5, 2.0, 50_000)
    assert figures["samples"] == [(1.0, 400)]
    assert figures["machine"].keys() == {"cores", "cpu", "system", "python", "codec"}
    assert (figures["broker"], figures["topic"], figures["stored"]) == ("localhost:9092", "clicks", 1_000)


def test_rate_of_its_own_goes_for_records_and_bytes() -> None:
    figures = report(records_per_s=2_000.0).as_json()
    assert (figures["records_per_s"], figures["mb_per_s"]) == (2_000.0, 0.1)


def test_run_that_did_nothing_has_rates_of_zero() -> None:
    figures = Report("produce", "b", Measured(1.0, 1.0, 0, 0, 0.0), {}).as_json()
    assert (figures["records_per_s"], figures["mb_per_s"]) == (0.0, 0.0)
    assert "0 records/s" in plain_table(["", ""], rows_of(figures))


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_report(report(), as_json=True)
    captured = capsys.readouterr()
    assert (captured.out.count("\n"), captured.err) == (1, "")
    assert json.loads(captured.out)["interrupted"] is False


def test_table_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show_report(report(interrupted=True), as_json=False)
    captured = capsys.readouterr()
    lines = [" ".join(line.split()) for line in captured.out.splitlines()]
    assert lines[:5] == [
        "produce",
        "records 1,000 in 2.00 s",
        "rate 500 records/s, 0.03 MB/s",
        "client CPU 0.50 s, 500.00 s per million records",
        "stored 1,000",
    ]
    assert lines[5] == "run send, topic clicks, 6 partitions, acks all, 50 B"
    assert lines[7] == "broker localhost:9092"
    assert captured.err == "interrupted: these are the results up to the interruption\n"


def test_latencies_stand_in_the_table_where_there_are_some() -> None:
    summary = {"count": 2, "p50_ms": 0.5, "p90_ms": 1.0, "p99_ms": 2.0, "p999_ms": 3.0, "max_ms": 4.0}
    figures = {**Report("latency", "b", MEASURED, {}).as_json(), **summary}
    rows = dict(rows_of(figures))
    assert (rows["median"], rows["99.9 %"], rows["max"]) == ("0.50 ms", "3.00 ms", "4.00 ms")
    assert "median" not in dict(rows_of({**figures, "count": 0}))


def test_report_without_latencies_is_json_that_any_program_reads() -> None:
    """NaN is not JSON."""
    assert not any(isinstance(value, float) and math.isnan(value) for value in NOTHING.as_json().values())


def test_nothing_is_drawn_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    line = ProgressLine(quiet=False)
    line("producer", Sample(1.0, 10, 100))
    line.clear()
    assert capsys.readouterr().err == ""


def test_progress_shows_the_rate_between_two_samples(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    line = ProgressLine(quiet=False)
    line("producer", Sample(1.0, 1_000, 1_000_000))
    line("producer", Sample(1.5, 3_000, 4_000_000))
    line("producer", Sample(1.6, 9_999_999, 0))
    line.clear()
    drawn = capsys.readouterr().err.split("\r\x1b[K")
    assert drawn == [
        "",
        "producer: 1,000 records, 0/s, 0.0 MB/s",
        "producer: 3,000 records, 4,000/s, 6.0 MB/s",
        "",
    ]
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert ProgressLine(quiet=True)("producer", Sample(1.0, 1, 1)) is None
    assert capsys.readouterr().err == ""


def test_each_side_of_a_run_gets_the_settings_that_it_has() -> None:
    given = {"linger.ms": "1", "fetch.max.bytes": "9", "client.id": "me", "no.such": "x", "compression.codec": "gzip"}
    writer = settings_without(given, ConsumerConfig, ProducerConfig)
    reader = settings_without(given, ProducerConfig, ConsumerConfig)
    assert set(writer) == {"linger.ms", "client.id", "no.such", "compression.codec"}
    assert set(reader) == {"fetch.max.bytes", "client.id", "no.such"}
