"""The Avro codec in Python. It processes one record at a time, and supports the types that the compiled codec lacks.
Values are the Python values from which Arrow builds the physical types (avro_types.py): a dict for a record, a dict of
one branch for a union of several types, pairs for a map, bytes for a fixed, a symbol for an enum. Null and a recursive
record are None.

The reader is strict. It rejects a length beyond the end of the record, a number out of range, and remaining bytes. The
writer never fails: it writes a forbidden None as zero, as an empty value or as the first symbol. Callers compare the
result with the original to detect a loss.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from barnabas.errors import SerializationError
from barnabas.serialization.avro_types import AvroType

Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[[Any, bytearray], None]

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_BITS = {"int": 32, "long": 64}


class PythonCodec:
    """A codec for the values of one schema: a record, a union of a record and null, or another union.

    A column is null if the value is null, or belongs to another branch of a union.
    """

    def __init__(self, tree: AvroType) -> None:
        self._types = {name: each.physical() for name, each in tree.inner.items()}
        self._read = _Readers().of(tree)
        self._write = _writer(tree)

    def decode(self, payloads: Sequence[bytes]) -> list[pa.Array]:
        """Decode records to one column per field.

        :raises SerializationError: if one of the records is damaged.
        """
        rows = [self._record(each) or {} for each in payloads]
        return [pa.array([row.get(name) for row in rows], kind) for name, kind in self._types.items()]

    def _record(self, payload: bytes) -> Any:
        try:
            value, end = self._read(payload, 0)
        except (IndexError, struct.error) as error:
            raise SerializationError("the record ends before its last field") from error
        except UnicodeDecodeError as error:
            raise SerializationError("a string is not valid UTF-8") from error
        except RecursionError as error:
            raise SerializationError("the record is nested too deep") from error
        if end != len(payload):
            raise SerializationError("the record has bytes after its last field")
        return value

    def encode(self, columns: Sequence[pa.Array], count: int) -> pa.Array:
        names, parts = list(self._types), [column.to_pylist() for column in columns]
        written = []
        for row in range(count):
            out = bytearray()
            self._write({name: part[row] for name, part in zip(names, parts, strict=True)}, out)
            written.append(bytes(out))
        return pa.array(written, pa.binary())


def _number(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise SerializationError("a number has more than 10 bytes")


def _piece(data: bytes, position: int, size: int) -> tuple[bytes, int]:
    if not 0 <= size <= len(data) - position:
        raise SerializationError("a length exceeds the rest of the record")
    return data[position : position + size], position + size


def _read_null(_data: bytes, position: int) -> tuple[None, int]:
    return None, position


def _read_boolean(data: bytes, position: int) -> tuple[bool, int]:
    if data[position] > 1:
        raise SerializationError("a boolean is not 0 or 1")
    return data[position] == 1, position + 1


def _read_float(data: bytes, position: int) -> tuple[float, int]:
    return _FLOAT.unpack_from(data, position)[0], position + 4


def _read_double(data: bytes, position: int) -> tuple[float, int]:
    return _DOUBLE.unpack_from(data, position)[0], position + 8


def _read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    return _piece(data, *reversed(_number(data, position)))


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    piece, position = _read_bytes(data, position)
    return piece.decode(), position


class _Readers:
    """A builder of reader functions. It caches the readers of records, because a recursive record refers to its own
    reader.
    """

    _plain: dict[str, Reader] = {  # noqa: RUF012 - never modified
        "null": _read_null,
        "boolean": _read_boolean,
        "float": _read_float,
        "double": _read_double,
        "bytes": _read_bytes,
        "string": _read_string,
    }

    def __init__(self) -> None:
        self._records: dict[str, Reader] = {}

    def of(self, tree: AvroType) -> Reader:
        """Return the function that reads values of a type."""
        read = self._bare(tree)
        if tree.kind == "union" or not isinstance(tree.written, list):
            return read
        return _among([read] if tree.null_at is None else [_read_null, read][:: 1 if tree.null_at == 0 else -1])

    def _bare(self, tree: AvroType) -> Reader:
        makers: dict[str, Callable[[AvroType], Reader]] = {
            "enum": lambda tree: _enum(tree.symbols),
            "fixed": lambda tree: lambda data, position: _piece(data, position, tree.size),
            "array": lambda tree: _items(self.of(tree.inner["items"])),
            "map": lambda tree: _items(_pair(self.of(tree.inner["values"]))),
            "union": self._union,
            "record": self._record,
            "again": lambda tree: lambda data, position: (None, self._records[tree.name](data, position)[1]),
        }
        if tree.kind in makers:
            return makers[tree.kind](tree)
        return self._plain.get(tree.kind) or _whole_number(_BITS[tree.kind])

    def _union(self, tree: AvroType) -> Reader:
        branches = [_branch(name, self.of(each)) for name, each in tree.inner.items()]
        if tree.null_at is not None:
            branches.insert(tree.null_at, _read_null)
        return _among(branches)

    def _record(self, tree: AvroType) -> Reader:
        self._records[tree.name] = read = _record([(name, self.of(each)) for name, each in tree.inner.items()])
        return read


def _whole_number(bits: int) -> Reader:
    bound = 1 << (bits - 1)

    def read(data: bytes, position: int) -> tuple[int, int]:
        value, position = _number(data, position)
        if not -bound <= value < bound:
            raise SerializationError(f"a number does not fit into {bits} bits")
        return value, position

    return read


def _enum(symbols: Sequence[str]) -> Reader:
    def read(data: bytes, position: int) -> tuple[str, int]:
        index, position = _number(data, position)
        if not 0 <= index < len(symbols):
            raise SerializationError("an enum's index is out of range")
        return symbols[index], position

    return read


def _among(branches: Sequence[Reader]) -> Reader:
    def read(data: bytes, position: int) -> tuple[Any, int]:
        index, position = _number(data, position)
        if not 0 <= index < len(branches):
            raise SerializationError("a union's index is out of range")
        return branches[index](data, position)

    return read


def _branch(name: str, inner: Reader) -> Reader:
    def read(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        value, position = inner(data, position)
        return {name: value}, position

    return read


def _pair(inner: Reader) -> Reader:
    def read(data: bytes, position: int) -> tuple[tuple[str, Any], int]:
        key, position = _read_string(data, position)
        value, position = inner(data, position)
        return (key, value), position

    return read


def _items(inner: Reader) -> Reader:
    """Return the reader of an array's or map's blocks. If the count of a block is negative, its
    size in bytes follows.
    """

    def read(data: bytes, position: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, position = _number(data, position)
            if count == 0:
                return items, position
            if count < 0:
                count = -count
                _, position = _number(data, position)
            # each item has at least one byte, because schemas with empty items are rejected
            if count > len(data) - position:
                raise SerializationError("a list's item count exceeds the remaining bytes")
            for _ in range(count):
                item, position = inner(data, position)
                items.append(item)

    return read


def _record(fields: Sequence[tuple[str, Reader]]) -> Reader:
    def read(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        values = {}
        for name, inner in fields:
            values[name], position = inner(data, position)
        return values, position

    return read


def _append_number(value: int, out: bytearray) -> None:
    left = (value << 1) ^ (value >> 63)
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)


def _append_bytes(value: bytes, out: bytearray) -> None:
    _append_number(len(value), out)
    out += value


def _writer(tree: AvroType) -> Writer:
    if tree.kind == "union":
        return _write_union(tree)
    write = _bare_writer(tree)
    if not isinstance(tree.written, list):
        return write
    null_at, own = tree.null_at, 0 if tree.null_at != 0 else 1

    def write_one_of(value: Any, out: bytearray) -> None:
        if value is None and null_at is not None:
            _append_number(null_at, out)
            return
        _append_number(own, out)
        write(value, out)

    return write_one_of


def _bare_writer(tree: AvroType) -> Writer:
    if tree.kind == "enum":
        numbers = {symbol: number for number, symbol in enumerate(tree.symbols)}
        return lambda value, out: _append_number(numbers.get(value, 0), out)
    if tree.kind == "fixed":
        return lambda value, out: out.extend((value or b"")[: tree.size].ljust(tree.size, b"\0"))
    if tree.kind == "array":
        return _write_items(_writer(tree.inner["items"]))
    if tree.kind == "map":
        return _write_items(_write_pair(_writer(tree.inner["values"])))
    if tree.kind == "record":
        fields = [(name, _writer(each)) for name, each in tree.inner.items()]
        return lambda value, out: _write_fields(fields, value or {}, out)
    return _PLAIN_WRITERS.get(tree.kind, lambda _value, _out: None)


_PLAIN_WRITERS: dict[str, Writer] = {
    "boolean": lambda value, out: out.append(1 if value else 0),
    "int": lambda value, out: _append_number(value or 0, out),
    "long": lambda value, out: _append_number(value or 0, out),
    "float": lambda value, out: out.extend(_FLOAT.pack(value or 0.0)),
    "double": lambda value, out: out.extend(_DOUBLE.pack(value or 0.0)),
    "bytes": lambda value, out: _append_bytes(value or b"", out),
    "string": lambda value, out: _append_bytes((value or "").encode(), out),
}


def _write_fields(fields: Sequence[tuple[str, Writer]], value: dict[str, Any], out: bytearray) -> None:
    for name, write in fields:
        write(value.get(name), out)


def _write_pair(write: Writer) -> Writer:
    def write_pair(pair: tuple[str, Any], out: bytearray) -> None:
        _append_bytes(pair[0].encode(), out)
        write(pair[1], out)

    return write_pair


def _write_items(write: Writer) -> Writer:
    def write_items(items: Sequence[Any] | None, out: bytearray) -> None:
        if items:
            _append_number(len(items), out)
            for item in items:
                write(item, out)
        _append_number(0, out)

    return write_items


def _write_union(tree: AvroType) -> Writer:
    """Return the writer of a union of several types. It writes the branch that is not null, or else null, or else the
    first branch.
    """
    null_at = tree.null_at
    places = [number for number in range(len(tree.inner) + 1) if number != null_at]
    branches = [(name, place, _writer(each)) for (name, each), place in zip(tree.inner.items(), places, strict=False)]

    def write_union(value: dict[str, Any] | None, out: bytearray) -> None:
        chosen = next((each for each in branches if value and value.get(each[0]) is not None), None)
        if chosen is None and null_at is not None:
            _append_number(null_at, out)
            return
        name, place, write = chosen or branches[0]
        _append_number(place, out)
        write((value or {}).get(name), out)

    return write_union
