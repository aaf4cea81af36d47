"""Features that Spark 4.0 or 4.1 lacks are refused with the version that has them."""

from __future__ import annotations

import re
from typing import Any

import pyspark
import pytest
from pyspark.sql.types import StructType

from barnabas.errors import ConfigurationError
from barnabas.spark.refused_stream import RefusedStream
from barnabas.spark.source import BarnabasDataSource, register
from barnabas.spark.spark_version import require_spark
from barnabas.spark.topic_queries import prepare

SESSION: Any = None
"""No session is needed: the version is checked first."""


def refused(feature: str, version: str, present: str) -> str:
    return re.escape(f"{feature} needs Spark {version} or later, and this is Spark {present}")


@pytest.mark.parametrize("present", ["4.2.0", "4.10.1", "5.0.0.dev1"])
def test_versions_are_compared_as_numbers(monkeypatch: pytest.MonkeyPatch, present: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", present)
    require_spark("a stream", (4, 2))


def test_spark_4_1_refuses_to_read_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    reader = BarnabasDataSource({}).streamReader(StructType())
    assert isinstance(reader, RefusedStream)
    with pytest.raises(ConfigurationError, match=refused('readStream.format("barnabas")', "4.2", "4.1.4")):
        reader.initialOffset()


def test_spark_4_0_refuses_stream_sinks_filters_and_sql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.0.0")
    with pytest.raises(ConfigurationError, match=refused('writeStream.format("barnabas")', "4.1", "4.0.0")):
        BarnabasDataSource({}).streamWriter(StructType(), overwrite=False)
    with pytest.raises(ConfigurationError, match=refused("filter pushdown", "4.1", "4.0.0")):
        register(SESSION, pushdown=True)
    with pytest.raises(ConfigurationError, match=refused("SQL on topics with --engine spark", "4.1", "4.0.0")):
        prepare(SESSION)
