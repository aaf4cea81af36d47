"""Differences between the supported versions of Spark, and features that need a newer one than 4.0.

Spark 4.1 added filters and Arrow batches in streaming sinks to Python data sources, and `arrow_udf`. Spark 4.2 added
the read limits of streams.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING

import pyspark

from barnabas.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FILTERS = (4, 1)
ARROW_FUNCTIONS = (4, 1)
STREAM_SINKS = (4, 1)
STREAM_SOURCES = (4, 2)


def require_spark(feature: str, version: tuple[int, int]) -> None:
    """Check that PySpark is new enough for a feature.

    :raises ConfigurationError: PySpark is older than `version`.
    """
    major, minor, *_rest = pyspark.__version__.split(".")
    if (int(major), int(minor)) < version:
        raise ConfigurationError(
            f"{feature} needs Spark {version[0]}.{version[1]} or later, and this is Spark {pyspark.__version__}; "
            "upgrade Spark, or see docs/how-to/pipeline.md for what this version supports"
        )


def arrow_schema_of(columns: StructType) -> pa.Schema:
    """Return the columns of a frame as an Arrow schema, with times in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415  # imports pyarrow

    # Before 4.2, the times are in UTC without this argument.
    named = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(columns, **named)  # type: ignore[arg-type]
