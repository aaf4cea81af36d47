"""Decodes batches into Arrow columns, and reads Arrow columns for sending.

With the compiled codec, neither decoding nor reading creates a Python object per record. pyarrow is imported at first
use; the extra `barnabas[arrow]` installs it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.errors import ConfigurationError
from barnabas.extras import require
from barnabas.records.codec import ColumnDecoder
from barnabas.records.codec_pure.encoding import column_reader
from barnabas.records.codec_pure.limits import BATCH_BYTES_MAX, OFFSET_MAX
from barnabas.records.columns import BinaryBuffers, ColumnBuffers, HeaderBuffers
from barnabas.records.header import Buffer
from barnabas.records.reader import iter_bodies

if TYPE_CHECKING:
    import pyarrow as pa


def import_pyarrow() -> Any:
    """Return the module pyarrow.

    :raises MissingExtraError: pyarrow is not installed.
    """
    return require("pyarrow", "arrow")


def header_type() -> pa.DataType:
    """Return the Arrow type of the headers column: lists of (name, value)."""
    pa = import_pyarrow()
    return pa.list_(pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.binary())]))


def arrow_schema(*, include_headers: bool = True) -> pa.Schema:
    """Return the columns of a record: the attributes of `Record`, with the timestamp as an Arrow timestamp (UTC)."""
    pa = import_pyarrow()
    fields = [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("timestamp_type", pa.int8(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
    if include_headers:
        fields.append(pa.field("headers", header_type(), nullable=False))
    return pa.schema(fields)


class ArrowReader:
    """Collects the records of many batches into Arrow columns.

    :param include_headers: True to add a column of headers.
    :raises ConfigurationError: pyarrow is not installed.
    """

    def __init__(self, *, include_headers: bool = True) -> None:
        self._pa = import_pyarrow()
        self.schema = arrow_schema(include_headers=include_headers)
        self._include_headers = include_headers
        self._decoder = ColumnDecoder(include_headers)
        self._stretches: list[tuple[str, int, int]] = []
        """The topic, partition and number of rows for each range of consecutive rows from one partition."""

    def __len__(self) -> int:
        return len(self._decoder)

    def read(
        self,
        buffer: Buffer,
        topic: str,
        partition: int,
        *,
        min_offset: int = 0,
        max_offset: int = OFFSET_MAX,
        max_records: int | None = None,
        check_crc: bool = True,
    ) -> int:
        """Add the records with `min_offset <= offset < max_offset` of all complete batches in `buffer`.

        :param max_records: the maximum number of records to add; None for all. Fewer records are added if a column
            would exceed 2 GiB.
        :returns: the offset at which the next read must continue.
        :raises CorruptBatchError: a batch is damaged; the records before it have been added.
        """
        left = OFFSET_MAX if max_records is None else max_records
        before = len(self)
        next_offset = min_offset
        try:
            for header, body in iter_bodies(buffer, min_offset, max_offset, check_crc=check_crc):
                if left <= 0 or self._decoder.size_bytes + len(body) > BATCH_BYTES_MAX:
                    return max(next_offset, header.base_offset)
                added = self._decoder.decode(body, header, min_offset, max_offset, left)
                left -= added
                if left <= 0:
                    next_offset = self._decoder.last_offset + 1
                    return header.next_offset if next_offset == header.next_offset else next_offset
                next_offset = min(header.next_offset, max_offset)
        finally:
            if len(self) > before:
                self._stretches.append((topic, partition, len(self) - before))
        return next_offset

    def stretches(self, row: int, width_ms: int) -> list[tuple[int, int, int]]:
        """Group the records in the rows from `row` on by timestamp windows; see `ColumnDecoder.stretches`."""
        return self._decoder.stretches(row, width_ms)

    def finish(self) -> pa.RecordBatch:
        """Return the records added since the last call."""
        pa = self._pa
        stretches, self._stretches = self._stretches, []
        buffers = self._decoder.finish()
        partitions = array("i")
        for _, number, count in stretches:
            partitions += array("i", [number]) * count
        numbers = pa.Array.from_buffers(pa.int32(), buffers.length, [None, pa.py_buffer(partitions)])
        return pa.RecordBatch.from_arrays(
            [self._topics(stretches, buffers.length), numbers, *self._arrays(buffers)], schema=self.schema
        )

    def _topics(self, stretches: list[tuple[str, int, int]], length: int) -> pa.Array:
        """Return the column of topics.

        It is made from buffers, because pyarrow imports pandas when it converts Python objects.
        """
        pa = self._pa
        names = [topic.encode() for topic in dict.fromkeys(topic for topic, _, _ in stretches)]
        ends = array("i", accumulate(map(len, names), initial=0))
        known = pa.Array.from_buffers(
            pa.string(), len(names), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(names))]
        )
        if len(names) == 1:
            return pa.repeat(known[0], length)
        indices = array("i")
        for topic, _, count in stretches:
            indices += array("i", [names.index(topic.encode())]) * count
        which = pa.Array.from_buffers(pa.int32(), length, [None, pa.py_buffer(indices)])
        return pa.DictionaryArray.from_arrays(which, known).dictionary_decode()

    def _arrays(self, columns: ColumnBuffers) -> list[pa.Array]:
        pa = self._pa
        fixed = [
            (pa.int64(), columns.offsets),
            (pa.timestamp("ms", tz="UTC"), columns.timestamps_ms),
            (pa.int8(), columns.timestamp_types),
        ]
        arrays = [pa.Array.from_buffers(kind, columns.length, [None, pa.py_buffer(data)]) for kind, data in fixed]
        arrays += [self._binary(pa.binary(), columns.keys), self._binary(pa.binary(), columns.values)]
        if columns.headers is not None:
            arrays.append(self._headers(columns.length, columns.headers))
        return arrays

    def _binary(self, kind: pa.DataType, column: BinaryBuffers) -> pa.Array:
        pa = self._pa
        validity = None if column.validity is None else pa.py_buffer(column.validity)
        buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
        return pa.Array.from_buffers(kind, column.length, buffers, column.null_count)

    def _headers(self, length: int, headers: HeaderBuffers) -> pa.Array:
        pa = self._pa
        kind = self.schema.field("headers").type
        children = [self._binary(pa.string(), headers.names), self._binary(pa.binary(), headers.values)]
        pairs = pa.StructArray.from_arrays(children, fields=list(kind.value_type))
        return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(headers.offsets)], children=[pairs])


class ArrowRows(NamedTuple):
    """Rows to send: columns of the same length."""

    values: BinaryBuffers
    keys: BinaryBuffers | None
    timestamps_ms: memoryview | None
    """The timestamps as int64 values, or None if all records get the time of sending."""

    def rows(self) -> Iterator[tuple[bytes | None, bytes | None, int | None]]:
        """Yield value, key and timestamp of each row."""
        value_of = column_reader(self.values)
        key_of = None if self.keys is None else column_reader(self.keys)
        for row in range(self.values.length):
            stamp = None if self.timestamps_ms is None else self.timestamps_ms[row]
            yield value_of(row), None if key_of is None else key_of(row), stamp

    def key(self, row: int) -> bytes | None:
        """Return the key of one row. The rows must have keys."""
        assert self.keys is not None
        return column_reader(self.keys)(row)


def arrow_rows(
    data: Any, *, value: str | None = None, key: str | None = None, timestamp: str | None = None
) -> list[ArrowRows]:
    """Return the columns of `data` to send, one element per chunk. Data is copied only if a type must be converted.

    :param data: Arrow data; see `Producer.send_arrow` for its types and for the names of the columns.
    :raises TypeError: `data` is not Arrow data, or a column has an unsupported type.
    :raises ConfigurationError: pyarrow is not installed, or a column does not exist.
    """
    table = arrow_table(data)
    if value is None:
        value = "value" if "value" in table.column_names or table.num_columns != 1 else table.column_names[0]
    names = [name for name in (value, key, timestamp) if name is not None]
    for name in names:
        if name not in table.column_names:
            raise ConfigurationError(f"there is no column {name!r}; there are {', '.join(table.column_names)}")
    return [
        ArrowRows(
            _binary_buffers(part.column(value), value),
            None if key is None else _binary_buffers(part.column(key), key),
            None if timestamp is None else _timestamps_ms(part.column(timestamp), timestamp),
        )
        for part in table.select(dict.fromkeys(names)).to_batches()
    ]


def arrow_table(data: Any) -> Any:
    """Convert Arrow data of any kind to a table; a single column gets the name `value`."""
    pa = import_pyarrow()
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, (pa.Array, pa.ChunkedArray)):
        return pa.table({"value": data})
    if not hasattr(data, "__arrow_c_stream__") and not hasattr(data, "__arrow_c_array__"):
        raise TypeError(f"send_arrow takes Arrow data (a pyarrow Table, an Array ...), not {type(data).__name__}")
    try:
        return pa.table(data)
    except (TypeError, pa.ArrowInvalid):  # `data` is a single column, such as a Polars series, and not a table
        return pa.table({"value": pa.chunked_array(data)})


def _timestamps_ms(column: Any, what: str) -> memoryview:
    pa = import_pyarrow()
    if column.null_count:
        raise ValueError(f"{what} has {column.null_count} nulls; each record needs a timestamp")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
    elif pa.types.is_integer(column.type):
        column = column.cast(pa.int64())
    else:
        raise TypeError(f"{what} has values of type {column.type}; they must be timestamps, or int64 in ms")
    data = column.buffers()[1]
    whole = memoryview(b"" if data is None else data).cast("B").cast("q")
    return whole[column.offset : column.offset + len(column)]


def _binary_buffers(chunk: Any, what: str) -> BinaryBuffers:
    pa = import_pyarrow()
    kinds = pa.types
    kind = chunk.type
    is_wide = kinds.is_large_binary(kind) or kinds.is_large_string(kind)
    if not (is_wide or kinds.is_binary(kind) or kinds.is_string(kind)):
        if not _is_binary_like(kind):
            raise TypeError(f"{what} has values of type {kind}; they must be binary or string (cast or encode them)")
        chunk, is_wide = chunk.cast(pa.large_binary()), True
    validity, offsets, data = chunk.buffers()
    if not chunk.null_count:
        validity = None
    empty = memoryview(b"")
    return BinaryBuffers(
        len(chunk),
        empty if offsets is None else memoryview(offsets),
        empty if data is None else memoryview(data),
        None if validity is None else memoryview(validity),
        chunk.null_count,
        chunk.offset,
        is_wide,
    )


def _is_binary_like(kind: Any) -> bool:
    kinds = import_pyarrow().types
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        kinds.is_binary(kind)
        or kinds.is_string(kind)
        or kinds.is_large_binary(kind)
        or kinds.is_large_string(kind)
        or kinds.is_binary_view(kind)
        or kinds.is_string_view(kind)
        or kinds.is_fixed_size_binary(kind)
        or kinds.is_null(kind)
    )
