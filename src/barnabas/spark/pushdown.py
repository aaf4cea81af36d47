"""Whether conditions may reach the data source: not where Spark mixes up the queries on one frame.

What a data source in Python plans after it was handed conditions, Spark 4.2 and 4.3 keep for all queries on the frame
of one `load()`, and for all parts of a query that use it: after `frame.where("partition = 1")`, `frame.count()` counts
one partition, and the union of two such conditions has the rows of one of them twice. Later releases keep it with the
one scan that it was made for.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from barnabas.spark.worker_python import context_of

_SCAN_BUILDER = "org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder"
_KEPT_IN = "readInfo"


def keeps_scans_apart(spark: SparkSession) -> bool:
    """Return whether this Spark keeps what it planned with the scan; where nobody can look, as with Connect, not."""
    context = context_of(spark)
    jvm = None if context is None else context._jvm
    if jvm is None:
        return False
    fields = jvm.java.lang.Class.forName(_SCAN_BUILDER).getDeclaredFields()
    return any(field.getName().endswith(_KEPT_IN) for field in fields)
