"""The reader of a streaming query that the data source refuses, with any version of Spark since 4.0."""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from barnabas.errors import BarnabasError
from barnabas.spark.error_summaries import hide_traceback


class RefusedStream(DataSourceStreamReader):
    """The reader of an invalid streaming query. Each method raises the error of the query.

    If `streamReader` raised the error itself, Spark would call `stop` on the missing reader and report that failure
    instead.
    """

    def __init__(self, error: BarnabasError) -> None:
        self._error = error

    def _refuse(self, *_asked: Any, **_named: Any) -> NoReturn:
        with hide_traceback():
            raise self._error

    initialOffset = latestOffset = getDefaultReadLimit = prepareForTriggerAvailableNow = partitions = read = _refuse  # noqa: N815
