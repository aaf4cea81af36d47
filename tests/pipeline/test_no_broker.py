"""Where nobody listens at the brokers' addresses, whatever is begun ends soon with a line that says so. No JVM runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from barnabas.errors import TimedOutError
from barnabas.spark import load
from barnabas.spark.source import BarnabasDataSource
from tests.support.ports import free_port

ROWS = StructType([StructField("value", BinaryType())])


def source(port: int, **options: str) -> BarnabasDataSource:
    return BarnabasDataSource({"kafka.bootstrap.servers": f"127.0.0.1:{port}", **options})


BEGINNINGS: dict[str, Callable[[int, Path], object]] = {
    "query": lambda port, _: source(port, subscribe="a").reader(ROWS).partitions(),
    "stream": lambda port, _: source(port, subscribe="a").streamReader(ROWS).initialOffset(),
    "sink": lambda port, _: source(port, topic="a").writer(ROWS, overwrite=False),
    "sink of a stream": lambda port, _: source(port, topic="a").streamWriter(ROWS, overwrite=False),
    "load": lambda port, folder: load("a", bootstrap=f"127.0.0.1:{port}", warehouse=folder / "warehouse"),
}


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_no_broker_is_told_in_a_line_before_anything_else_is_done(
    beginning: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.spark.range_reading.REACHABLE_WITHIN_MS", 300)
    with pytest.raises(TimedOutError, match="is it running") as caught:
        BEGINNINGS[beginning](free_port(), tmp_path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
