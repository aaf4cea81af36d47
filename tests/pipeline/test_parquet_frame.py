"""Parquet files of a table whose fields have other names by now, as Spark reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.formats.field_aliases import Path as FieldPath
from barnabas.spark.parquet_frame import frame_of_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)

Files = Sequence[Mapping[str, list[Any]]]
Former = Mapping[FieldPath, Sequence[str]]

ANOTHER_COLUMN: Former = {("url",): ["page"]}
TWICE: Former = {("b",): ["A", "a"]}
BOTH: Former = {("url",): ["page"], ("link",): ["PAGE"]}
IN_A_LIST: Former = {("many", "element", "url"): ["page"]}


@pytest.mark.parametrize(
    ("files", "former", "rows"),
    [
        pytest.param(
            [{"page": ["1"]}, {"url": ["2"]}, {"url": ["3"], "Page": ["P"]}],
            ANOTHER_COLUMN,
            [{"url": "1", "Page": None}, {"url": "2", "Page": None}, {"url": "3", "Page": "P"}],
            id="a former name and another column",
        ),
        pytest.param(
            [{"page": ["1"], "PAGE": ["2"]}, {"url": ["3"], "link": ["4"]}],
            BOTH,
            [{"url": "1", "link": "2"}, {"url": "3", "link": "4"}],
            id="former names of two columns",
        ),
        pytest.param(
            [{"a": ["1"]}, {"A": ["2"]}, {"b": ["3"]}],
            TWICE,
            [{"b": "1"}, {"b": "2"}, {"b": "3"}],
            id="former names of one column",
        ),
        pytest.param(
            [{"many": [[{"page": "1"}], None]}, {"many": [[{"url": "2", "Page": "P"}, None], []]}],
            IN_A_LIST,
            [
                {"many": [{"url": "1", "Page": None}]},
                {"many": None},
                {"many": [{"url": "2", "Page": "P"}, None]},
                {"many": []},
            ],
            id="within a list",
        ),
    ],
)
def test_former_names_that_differ_by_case_alone_are_told_apart(
    spark: SparkSession, tmp_path: Path, files: Files, former: Former, rows: list[dict[str, Any]]
) -> None:
    paths = []
    for number, columns in enumerate(files):
        count = len(next(iter(columns.values())))
        ids = [10 * number + each for each in range(count)]
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"id": ids, **columns}), path)
        paths.append(path.as_uri())
    kinds = {name: pa.string() for name in rows[0]}
    if "many" in kinds:
        kinds["many"] = pa.list_(pa.struct([("url", pa.string()), ("Page", pa.string())]))
    schema = pa.schema([("id", pa.int64()), *kinds.items()])
    frame = frame_of_files(spark, paths, schema, {}, former).orderBy("id")
    assert [row.asDict(recursive=True) for row in frame.drop("id").collect()] == rows
