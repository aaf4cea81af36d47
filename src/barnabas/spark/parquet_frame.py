"""The Parquet files of a table as a Spark DataFrame, in local files, HDFS or an object store.

Spark's Parquet reader reads local files and HDFS. For object stores Spark would need jars that match its Hadoop
version, so tasks read the files with Arrow and the table's storage properties instead. Arrow also reads tables with a
field whose earlier name differs from another field only in case, because Arrow distinguishes such names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast
from urllib.parse import urlparse

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import coalesce, struct, transform, transform_values, when
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from barnabas.formats.column_names import sql_key
from barnabas.formats.field_aliases import Path
from barnabas.spark.parquet_batches import rows_of_file
from barnabas.spark.projection import FormerNames
from barnabas.spark.spark_version import arrow_schema_of

READ_BY_SPARK = frozenset({"", "file", "hdfs", "viewfs"})


def frame_of_files(
    spark: SparkSession,
    files: Sequence[str],
    schema: pa.Schema,
    properties: Mapping[str, str],
    former: FormerNames | None = None,
    constants: Mapping[str, Mapping[str, object]] | None = None,
) -> DataFrame:
    """Return the rows of files as a DataFrame.

    :param schema: The schema of the table. Columns that a file lacks are null.
    :param properties: The storage properties, as pyiceberg names them.
    :param former: The earlier names of renamed fields; older files still use them.
    :param constants: For each file, the columns that it lacks because they have one value in all of its rows.
    """
    types = from_arrow_schema(schema)
    if not files:
        return spark.createDataFrame([], types)
    if not constants and all(urlparse(file).scheme in READ_BY_SPARK for file in files):
        if not former:
            return spark.read.schema(types).parquet(*files)
        in_files = cast("StructType", _with_all_names(types, (), former))
        if _have_distinct_names(in_files):
            rows = spark.read.schema(in_files).parquet(*files)
            return rows.select(*_under_one_name(lambda name: rows[f"`{name}`"], types, (), former))
    reached, renamed, known = dict(properties), dict(former or {}), constants or {}
    wanted = arrow_schema_of(types)  # the Arrow types that Spark expects from mapInArrow

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.column("file").to_pylist():
                for rows in rows_of_file(file, wanted, reached, renamed):
                    yield _with_constants(rows, known.get(file, {}))

    listed = spark.createDataFrame([(file,) for file in files], "file string").repartition(len(files))
    return listed.mapInArrow(read, types)


def _with_constants(rows: pa.RecordBatch, values: Mapping[str, object]) -> pa.RecordBatch:
    columns = [
        pa.repeat(pa.scalar(values[field.name], field.type), len(rows)) if field.name in values else column
        for field, column in zip(rows.schema, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _with_all_names(kind: DataType, path: Path, former: FormerNames) -> DataType:
    """Return a type with one field for each name that a field has in any file."""
    if isinstance(kind, ArrayType):
        return ArrayType(_with_all_names(kind.elementType, (*path, "element"), former))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _with_all_names(kind.valueType, (*path, "value"), former))
    if not isinstance(kind, StructType):
        return kind
    whole = StructType()
    for field in kind:
        own = (*path, field.name)
        for name in _names(own, former):
            whole = whole.add(name, _with_all_names(field.dataType, own, former))
    return whole


def _have_distinct_names(kind: DataType) -> bool:
    """Return whether the field names in each struct differ for SQL, which ignores case."""
    if isinstance(kind, ArrayType):
        return _have_distinct_names(kind.elementType)
    if isinstance(kind, MapType):
        return _have_distinct_names(kind.valueType)
    if not isinstance(kind, StructType):
        return True
    names = {sql_key(name) for name in kind.names}
    return len(names) == len(kind.names) and all(_have_distinct_names(field.dataType) for field in kind)


def _under_one_name(
    field_of: Callable[[str], Column], kind: StructType, path: Path, former: FormerNames
) -> list[Column]:
    """Return the fields of a struct. A file has each field under one of its names; the other names are null."""
    columns = []
    for field in kind:
        own = (*path, field.name)
        parts = [_merged(field_of(name), field.dataType, own, former) for name in _names(own, former)]
        columns.append(coalesce(*parts).alias(field.name))
    return columns


def _merged(column: Column, kind: DataType, path: Path, former: FormerNames) -> Column:
    """Return a column whose nested fields have one name each."""
    if not any(len(way) > len(path) and way[: len(path)] == path for way in former):
        return column
    if isinstance(kind, ArrayType):
        return transform(column, lambda each: _merged(each, kind.elementType, (*path, "element"), former))
    if isinstance(kind, MapType):
        return transform_values(column, lambda _, each: _merged(each, kind.valueType, (*path, "value"), former))
    assert isinstance(kind, StructType), "only structs, arrays and maps contain renamed fields"
    return when(column.isNotNull(), struct(*_under_one_name(column.getField, kind, path, former)))


def _names(path: Path, former: FormerNames) -> list[str]:
    """Return the names that a field may have in a file. Spark ignores case, so names that differ in case are one."""
    names: dict[str, str] = {}
    for name in (path[-1], *former.get(path, ())):
        names.setdefault(sql_key(name), name)
    return list(names.values())
