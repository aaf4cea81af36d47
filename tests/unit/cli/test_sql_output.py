"""Rows as tables, JSON and CSV: as they come, and whatever strangers have put into them."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from barnabas.cli.sql_output import ROWS_MEASURED, CsvWriter, JsonWriter, TableWriter, writer_for

NASTY = "a\x1b[31m\nb\u202e"


def written(make, *batches: pa.RecordBatch) -> str:
    output = io.StringIO()
    writer = make(batches[0].schema, output)
    for batch in batches:
        writer.write(batch)
    writer.finish()
    return output.getvalue()


def batch(**columns: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_numbers_are_aligned_right_and_null_is_not_the_same_as_a_dash() -> None:
    assert written(TableWriter, batch(page=["/", None], n=[5, 10])) == "page   n\n/      5\nNULL  10\n"


def test_a_map_is_an_object() -> None:
    headers = pa.array([[("trace", "7"), ("none", None)], None], pa.map_(pa.string(), pa.string()))
    assert written(CsvWriter, batch(h=headers)) == 'h\n"{""trace"": ""7"", ""none"": null}"\n""\n'
    assert json.loads(written(JsonWriter, batch(h=headers)).splitlines()[0]) == {"h": {"trace": "7", "none": None}}


def test_a_result_without_rows_has_its_columns() -> None:
    assert written(TableWriter, batch(page=["/"]).slice(0, 0)) == "page\n"


def test_control_characters_do_not_reach_a_terminal() -> None:
    text = written(TableWriter, batch(page=[NASTY]))
    assert "a\\x1b[31m\\nb\\u202e" in text
    assert len(text.splitlines()) == 2


@pytest.mark.parametrize("options", [{"as_json": True, "as_csv": False}, {"as_json": False, "as_csv": True}])
def test_nor_do_they_as_json_or_csv(options: dict[str, bool]) -> None:
    text = written(writer_for(**options, is_terminal=True), batch(page=["a\x1b[31m\x9b1m\u202e"]))
    assert all(line.isprintable() for line in text.splitlines())
    assert "[31m" in text


def test_csv_for_another_program_is_as_it_came() -> None:
    assert NASTY in written(writer_for(as_json=False, as_csv=True, is_terminal=False), batch(page=[NASTY]))


def test_a_row_is_a_line_on_a_terminal() -> None:
    def narrow(schema: pa.Schema, output: io.StringIO) -> TableWriter:
        return TableWriter(schema, output, 30)

    lines = written(narrow, batch(value=["x" * 100], n=[12])).splitlines()
    assert [len(line) <= 30 for line in lines] == [True, True]
    assert "…" in lines[1]


def test_a_table_is_written_as_its_rows_come() -> None:
    output = io.StringIO()
    rows = batch(n=list(range(ROWS_MEASURED)))
    writer = TableWriter(rows.schema, output)
    writer.write(rows.slice(0, 10))
    assert output.getvalue() == ""
    writer.write(rows)
    assert len(output.getvalue().splitlines()) == ROWS_MEASURED + 11
    writer.write(batch(n=[10**12]))
    assert output.getvalue().splitlines()[-1] == "1000000000000"


def test_json_has_a_line_for_each_row_with_values_as_json_has_them() -> None:
    rows = batch(
        at=[datetime(2013, 1, 31, tzinfo=UTC)],
        day=[date(2013, 1, 31)],
        price=[Decimal("1.50")],
        bytes=[b"\xff"],
        nested=[{"a": [1, None]}],
        nan=[float("nan")],
        text=[NASTY],
    )
    assert json.loads(written(JsonWriter, rows)) == {
        "at": "2013-01-31T00:00:00.000Z",
        "day": "2013-01-31",
        "price": "1.50",
        "bytes": {"base64": "/w=="},
        "nested": {"a": [1, None]},
        "nan": "nan",
        "text": NASTY,
    }


def test_csv_can_be_read_back() -> None:
    text = written(CsvWriter, batch(page=['say "hi",\nyou', None], n=[1, 2]))
    assert list(csv.reader(io.StringIO(text))) == [["page", "n"], ['say "hi",\nyou', "1"], ["", "2"]]


def test_columns_of_the_same_name_are_both_there() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
    assert written(TableWriter, rows) == "n  n\n1  2\n"


def test_times_beyond_the_calendar_are_written() -> None:
    far = pa.RecordBatch.from_arrays([pa.array([2**60]).cast(pa.timestamp("us"))], names=["at"])
    assert str(2**60) in written(CsvWriter, far)


@pytest.mark.parametrize("names", [["explain_key", "explain_value"], ["plan"]])
def test_a_plan_is_drawn_as_it_is(names: list[str]) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(["| scan |\n| all |"])] * len(names), names=names)
    make = writer_for(as_json=False, as_csv=False, is_terminal=False)
    assert written(make, rows) == "| scan |\n| all |\n"


def test_line_that_is_too_short_for_the_columns_gives_each_cell_a_line() -> None:
    rows = batch(**{f"column_{each}": ["a long text", "b"] for each in range(6)})
    text = written(lambda schema, output: TableWriter(schema, output, 40), rows)
    assert text.count("column_3: a long text\n") == 1
    assert all(len(line) <= 40 for line in text.splitlines())
