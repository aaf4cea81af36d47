"""Features that need a newer Spark than the oldest supported version, 4.0.

Spark 4.1 added filters and Arrow batches in streaming sinks to Python data sources, and `arrow_udf`. Spark 4.2 added
the read limits of streams.
"""

from __future__ import annotations

import pyspark

from barnabas.errors import ConfigurationError

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
