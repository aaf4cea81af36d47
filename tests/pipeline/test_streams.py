"""`barnabas.spark.streams` against plain Python, on random events of which some come late: as a table, as a stream.

Many cases are in one frame, told apart by a column, and the queries of all functions run at the same time: Spark takes
longer to start a query than to answer it.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.errors import ConfigurationError
from barnabas.spark.streams import count_sessions, count_windows, drop_repeats, enrich, join_within, top_k
from tests.support.stream_reference import (
    Batch,
    Row,
    first_of_ids,
    pairs_within,
    sessions,
    tops,
    window_counts,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE_S = 400
CASES, BATCHES, PACE, DISORDER = 25, 4, 20, 75
SIZE, SLIDE, GAP, BEFORE, WITHIN, K = 30, 10, 7, 5, 12, 2
LATE = 10
BEGIN = 1_000
FLUSH = Row(-1, "flush", 0, 1_000_000)
"""Comes last, so that all that is before it is complete."""
COLOURS = {"a": "red", "b": "green", "d": "blue"}

Found = Mapping[str, Sequence[tuple[object, ...]]]


def random_batches(seed: int) -> list[Batch]:
    """Draw batches whose times go on at about PACE, and up to DISORDER late. An id is in a batch once at most."""
    draw = random.Random(seed)
    batches: list[Batch] = []
    for number in range(BATCHES):
        rows = {}
        for case in range(CASES):
            for _ in range(draw.randrange(8)):
                at = BEGIN + number * PACE + draw.randrange(PACE) - draw.choice([0, 0, draw.randrange(DISORDER)])
                row = Row(case, draw.choice("abcd"), draw.randrange(12), at)
                rows[case, row.id] = row
        batches.append(list(rows.values()))
    return [*batches, [FLUSH]]


LEFT, RIGHT = random_batches(1), random_batches(2)


def write(batches: Sequence[Batch], folder: Path) -> Path:
    """Write a file for each batch; their ages say which comes first."""
    folder.mkdir()
    for number, batch in enumerate(batches):
        path = folder / f"{number}.json"
        path.write_text("".join(f"{json.dumps(row._asdict())}\n" for row in batch))
        os.utime(path, (number, number))
    return folder


def frame(spark: SparkSession, folder: Path, *, stream: bool) -> DataFrame:
    """Return the rows with their time as a timestamp."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    reader = spark.readStream.option("maxFilesPerTrigger", "1") if stream else spark.read
    rows = reader.schema("case int, item string, id int, at long").json(str(folder))
    return rows.select("case", "item", "id", F.timestamp_seconds("at").alias("timestamp"))


def queries(spark: SparkSession, left: DataFrame, right: DataFrame, late: str | None) -> dict[str, DataFrame]:
    """Ask all there is to ask."""
    colours = spark.createDataFrame(
        [(item, f"old {colour}", 0) for item, colour in COLOURS.items()]
        + [(item, colour, 1) for item, colour in COLOURS.items()],
        "item string, colour string, version int",
    )
    once = drop_repeats(left, ["case", "id"], late=late)
    return {
        "tumbling": count_windows(left, f"{SIZE} s", by=["case", "item"], late=late),
        "sliding": count_windows(left, f"{SIZE} s", by=["case", "item"], slide=f"{SLIDE} s", late=late),
        "tops": top_k(left, K, "item", f"{SIZE} s", by="case", late=late),
        "sessions": count_sessions(left, f"{GAP} s", by="case", collect="item", late=late),
        "once": enrich(once, colours, "item", newest_by="version"),
        "pairs": join_within(left, right, ["case", "item"], f"{WITHIN} s", before=f"{BEFORE} s", how="left", late=late),
    }


def answer(name: str, found: DataFrame) -> list[tuple[object, ...]]:
    """Return what was found, but for the row that came last, with times in seconds."""
    rows = [row.asDict(recursive=True) for row in found.collect()]
    return [tuple(map(_plain, row.values())) for row in rows if row["case"] != FLUSH.case]


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return round(value.timestamp())  # PySpark gives local times without a zone
    if isinstance(value, dict):
        return tuple(map(_plain, value.values()))
    return tuple(sorted(value)) if isinstance(value, list) else value


def expected(late: int | None) -> Found:
    """Answer it all in plain Python."""
    real = lambda rows: [row for row in rows if row[0] != FLUSH.case]  # noqa: E731
    sliding = window_counts(LEFT, SIZE, SLIDE, late)
    tumbling = window_counts(LEFT, SIZE, SIZE, late)
    best = tops(tumbling, K)
    found = sessions(LEFT, GAP, late)
    return {
        "tumbling": [(window, case, item, count) for (case, item, window), count in tumbling.items() if case >= 0],
        "sliding": [(window, case, item, count) for (case, item, window), count in sliding.items() if case >= 0],
        "tops": [(window, case, rank, item, count) for case, window, rank, item, count in best if case >= 0],
        "sessions": [
            ((at.start, at.end), case, len(at.items), tuple(sorted(set(at.items)))) for case, at in real(found)
        ],
        "once": [
            (*row, COLOURS.get(row.item), 1 if row.item in COLOURS else None) for row in real(first_of_ids(LEFT, late))
        ],
        "pairs": [
            (*row, *((match.id, match.at) if match else (None, None)))
            for row, match in pairs_within(LEFT, RIGHT, BEFORE, WITHIN, late)
            if row.case >= 0
        ],
    }


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """The batches of both sides in files."""
    return write(LEFT, tmp_path / "left"), write(RIGHT, tmp_path / "right")


@pytest.mark.timeout(600)
def test_of_a_table_each_function_returns_what_plain_python_does(
    one_shuffle: SparkSession, folders: tuple[Path, Path]
) -> None:
    left, right = (frame(one_shuffle, folder, stream=False) for folder in folders)
    wanted = expected(None)
    for name, asked in queries(one_shuffle, left, right, None).items():
        assert sorted(map(str, answer(name, asked))) == sorted(map(str, wanted[name])), name


@pytest.mark.timeout(900)
def test_of_a_stream_each_function_leaves_out_what_is_too_late_and_nothing_else(
    one_shuffle: SparkSession, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    left, right = (frame(one_shuffle, folder, stream=True) for folder in folders)
    running = {
        name: asked.writeStream.format("memory").queryName(f"streams_{name}").outputMode("append")
        .option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
        for name, asked in queries(one_shuffle, left, right, f"{LATE} s").items()
    }  # fmt: skip
    wanted, of_table = expected(LATE), expected(None)
    for name, query in running.items():
        assert query.awaitTermination(PATIENCE_S)
        found = answer(name, one_shuffle.table(f"streams_{name}"))
        assert sorted(map(str, found)) == sorted(map(str, wanted[name])), name
        assert sorted(map(str, wanted[name])) != sorted(map(str, of_table[name])), f"{name}: nothing was too late"


def test_what_does_not_fit_is_refused_with_what_would(one_shuffle: SparkSession, tmp_path: Path) -> None:
    folder = write([[FLUSH]], tmp_path / "rows")
    table, stream = (frame(one_shuffle, folder, stream=each) for each in (False, True))
    with pytest.raises(ConfigurationError, match=r"no column 'page'; the columns are case, item, id, timestamp"):
        count_windows(table, "1 minute", by="page")
    with pytest.raises(ConfigurationError, match="set the largest delay of events in the stream"):
        count_windows(stream, "1 minute")
    with pytest.raises(ConfigurationError, match="has a watermark already"):
        count_windows(stream.withWatermark("timestamp", "1 second"), "1 minute", late="1 s")
    with pytest.raises(ConfigurationError, match="'id' is of type int; it must be a timestamp"):
        count_windows(table, "1 minute", time="id")
    with pytest.raises(ConfigurationError, match="longer than the window"):
        count_windows(table, "1 minute", slide="2 minutes")
    with pytest.raises(ConfigurationError, match="'soon' is not a duration"):
        count_sessions(table, "soon", by="case")
    with pytest.raises(ConfigurationError, match="it must not be a stream"):
        enrich(table, stream, "item")
    with pytest.raises(ConfigurationError, match="k: 0 is not from 1"):
        top_k(table, 0, "item", "1 minute")
