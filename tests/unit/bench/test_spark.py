"""W13 asks for what its program does, and reads what it prints."""

from __future__ import annotations

import json

import pytest

from bench.goals import GOALS, SPARK, SPARKS_SOURCE, against_sparks_source, took
from bench.processes import ClientError
from bench.results import Case, Row, Run
from bench.spark_job import SOURCES, WORKS, timed_rounds
from bench.workloads.spark import AVRO_FIELDS, BARNABAS_ONLY, BOTH_SERVERS, JSON_VALUE, SparkReport, parse_report


def test_each_row_asks_for_something_that_the_program_does() -> None:
    asked = (*BOTH_SERVERS, *BARNABAS_ONLY)
    assert {each.work for each in asked} == set(WORKS)
    assert {each.source for each in asked} == set(SOURCES)
    assert len({(each.case, each.client) for each in asked}) == len(asked)


def test_each_goal_is_of_a_row_that_is_measured() -> None:
    goals = [each for each in GOALS if each.workload == "W13"]
    assert len(goals) == 7
    measured = {(each.case, each.client) for each in (*BOTH_SERVERS, *BARNABAS_ONLY)}
    assert {(each.case, each.client) for each in goals} <= measured
    beside = {each.case for each in goals if each.measured is against_sparks_source}
    assert {(case, SPARKS_SOURCE) for case in beside} <= measured


def test_throughput_is_told_beside_that_of_sparks_own_source() -> None:
    case = Case("count", 100, [Row("Barnabas", SPARK, [Run(4000, 2.0)])])
    assert against_sparks_source(case, case.rows[0]) is None
    case.rows.append(Row("Barnabas", SPARKS_SOURCE, [Run(4000, 8.0)]))
    assert against_sparks_source(case, case.rows[0]) == "4.00 x Spark's: 2,000/s"
    assert took(case, case.rows[0]) == "2.00 s"


def test_the_objects_have_ten_fields() -> None:
    value = json.loads(JSON_VALUE % (1, 2, 3, 4, 5, "true"))
    assert len(value) == 10
    assert (value["id"], value["seconds"], value["cached"]) == (1, 0.005, True)
    assert list(AVRO_FIELDS) == list(value)


def test_a_load_of_nothing_counts_the_records_that_the_table_has() -> None:
    loaded = iter([7, 0, 0])
    report = timed_rounds(lambda _: next(loaded), 2)
    assert report["records"] == 7
    assert len(report["seconds"]) == 2  # type: ignore[arg-type]


def test_a_first_query_has_no_round_that_warms_up() -> None:
    numbers: list[int] = []
    timed_rounds(lambda number: numbers.append(number) or 1, 1, warms_up=False)
    assert numbers == [1]


def test_the_report_is_the_line_of_json() -> None:
    assert parse_report('noise\n{"records": 5, "seconds": [1.5], "cpu_s": 2}\n') == SparkReport(5, [1.5], 2.0)
    with pytest.raises(ClientError, match="no report"):
        parse_report("noise")
