"""Parquet files of a table as a Spark DataFrame, wherever they are.

Files of this machine, and those in HDFS, are read by Spark's own Parquet reader. For object stores Spark needs jars
that match its Hadoop; without them, tasks read the files with Arrow, under the properties that the table's catalog has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import coalesce
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from barnabas.spark.object_files import file_system_of
from barnabas.spark.projection import project

READ_BY_SPARK = frozenset({"", "file", "hdfs", "viewfs"})
BATCH_ROWS = 65_536


def frame_of_files(
    spark: SparkSession,
    files: Sequence[str],
    schema: pa.Schema,
    properties: Mapping[str, str],
    former: Mapping[str, Sequence[str]] | None = None,
) -> DataFrame:
    """Return the rows of files.

    :param schema: the table's; files that lack columns of it have nulls there.
    :param properties: how the files are reached, as pyiceberg names them.
    :param former: names that columns have in some of the files, as they were renamed since.
    """
    types = from_arrow_schema(schema)
    if not files:
        return spark.createDataFrame([], types)
    if all(urlparse(file).scheme in READ_BY_SPARK for file in files):
        return _read_by_spark(spark, files, types, former or {})
    reached, renamed = dict(properties), dict(former or {})
    wanted = to_arrow_schema(types, timezone="UTC")  # Arrow's types as Spark takes them back

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.column("file").to_pylist():
                yield from _rows(file, wanted, reached, renamed)

    listed = spark.createDataFrame([(file,) for file in files], "file string").repartition(len(files))
    return listed.mapInArrow(read, types)


def _read_by_spark(
    spark: SparkSession, files: Sequence[str], types: StructType, former: Mapping[str, Sequence[str]]
) -> DataFrame:
    if not former:
        return spark.read.schema(types).parquet(*files)
    whole = StructType(list(types))
    for column, names in former.items():
        for former_name in names:
            whole = whole.add(former_name, types[column].dataType)
    rows = spark.read.schema(whole).parquet(*files)
    # A file has a column under one of its names only, and the others are null.
    columns = {name: [rows[f"`{each}`"] for each in (name, *former.get(name, ()))] for name in types.names}
    return rows.select(*(coalesce(*each).alias(name) for name, each in columns.items()))


def _rows(
    file: str, schema: pa.Schema, properties: Mapping[str, str], former: Mapping[str, Sequence[str]]
) -> Iterator[pa.RecordBatch]:
    system, path = file_system_of(properties, file)
    with pq.ParquetFile(path, filesystem=system) as opened:
        for batch in opened.iter_batches(BATCH_ROWS):
            yield project(batch, schema, former)
