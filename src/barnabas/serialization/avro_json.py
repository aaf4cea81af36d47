"""Avro records as JSON values, and back, for the command.

The JSON is that of Avro's specification (*JSON Encoding*) without the names of union branches: bytes and fixed are
strings with one character per byte, and times and dates are numbers. Decimals are strings, such as "12.50". The other
direction also accepts the names of union branches: `{"string": "a"}`. The JSON of any record can be encoded again.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from barnabas.errors import SerializationError
from barnabas.serialization import wire_format
from barnabas.serialization.avro import parse_for_reading
from barnabas.serialization.avro_limits import RecordLimits
from barnabas.serialization.extras import require_schema_package
from barnabas.serialization.registry_client import Schema, SchemaRegistry

DECIMAL = "decimal"
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INTEGERS = {"int": 2**31, "long": 2**63}
_NAMED = ("record", "error", "enum", "fixed")
_PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {"null": type(None), "boolean": bool, "string": str}
_DOUBLE_MAX = 2**1023
DECIMAL_EXPONENT_MAX = 1_000
"""The maximum exponent of a decimal. fastavro expands the number before it compares the digits with the precision."""
_MISFIT = object()
"""The result for a value that does not fit a type."""
SHOWN_LETTERS_MAX = 80


class AvroJson:
    """Converts between JSON values and Avro records with schema ids. Not thread-safe."""

    def __init__(self, registry: SchemaRegistry) -> None:
        fastavro = require_schema_package("fastavro")
        self._read, self._write = fastavro.schemaless_reader, fastavro.schemaless_writer
        self._registry = registry
        self._types: dict[Schema, tuple[Any, RecordLimits, _Fitter]] = {}

    def decode(self, data: bytes) -> Any:
        """Return a record as a JSON value.

        :raises SerializationError: the bytes are not a valid record.
        :raises SchemaRegistryError: the registry rejects the request for the schema.
        :raises TimedOutError: no registry responds.
        """
        schema_id = wire_format.schema_id(data)
        parsed, limits, _ = self._type(self._registry.schema(schema_id))
        limits.check(data, wire_format.HEADER_BYTES)
        stream = io.BytesIO(data)
        stream.seek(wire_format.HEADER_BYTES)
        try:
            found = _as_json(self._read(stream, parsed, None))
        except Exception as error:  # fastavro does not document the exceptions that it raises
            raise SerializationError(f"invalid record of schema {schema_id}: {error!r}") from error
        if rest := len(data) - stream.tell():
            raise SerializationError(f"{rest} bytes follow the record of schema {schema_id}")
        return found

    def encode(self, value: Any, schema_id: int, schema: Schema) -> bytes:
        """Return the record of a JSON value, with the schema id before it.

        :raises SerializationError: the value does not fit the schema; the message contains the path of the field.
        """
        parsed, _, fitter = self._type(schema)
        out = io.BytesIO()
        out.write(wire_format.header(schema_id))
        try:
            self._write(out, parsed, fitter.fit(value, parsed, "", is_exact=False))
        except SerializationError:
            raise
        except Exception as error:  # fastavro does not document the exceptions that it raises
            raise SerializationError(f"the value does not fit the schema: {error!r}") from error
        return out.getvalue()

    def _type(self, schema: Schema) -> tuple[Any, RecordLimits, _Fitter]:
        found = self._types.get(schema)
        if found is None:
            parsed, limits = parse_for_reading(self._registry, schema)
            named = dict(parsed.get("__named_schemas", {})) if isinstance(parsed, dict) else {}
            _collect_and_simplify([parsed, *named.values()], named)
            found = self._types[schema] = parsed, limits, _Fitter(named)
        return found


def _collect_and_simplify(waiting: list[Any], named: dict[str, Any]) -> None:
    """Remove the logical types but decimals from parsed schemas, and add the named types to `named`.

    Without its logical type, a time is the stored number, also if Python has no such time.
    """
    seen: list[Any] = []
    known: set[int] = set()
    while waiting:
        kind = waiting.pop()
        if id(kind) in known:
            continue
        known.add(id(kind))
        seen.append(kind)  # keeps the object alive, because `known` contains its id
        if isinstance(kind, list):
            waiting += kind
        elif isinstance(kind, dict):
            if kind.get("logicalType") != DECIMAL:
                kind.pop("logicalType", None)
            if kind["type"] in _NAMED:
                named.setdefault(kind["name"], kind)
            waiting += [kind[part] for part in ("type", "items", "values") if isinstance(kind.get(part), dict | list)]
            waiting += [field["type"] for field in kind.get("fields", ())]


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return format(value, "f") if isinstance(value, Decimal) else value


class _Fitter:
    """Converts JSON values to the Python values that fastavro writes.

    :param named: the named types by their full names.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def fit(self, value: Any, kind: Any, path: str, *, is_exact: bool) -> Any:
        """Return the Python value for a JSON value.

        :param kind: a parsed schema.
        :param is_exact: refuse an integer for a floating point type.
        :raises SerializationError: the value does not fit the type.
        """
        if isinstance(kind, list):
            return self._of_union(value, kind, path)
        if isinstance(kind, str):
            kind = self._named.get(kind) or {"type": kind}
        name = kind["type"]
        if not isinstance(name, str):
            return self.fit(value, name, path, is_exact=is_exact)
        makers: dict[str, Callable[[Any, Mapping[str, Any], str], Any]] = {
            "record": self._record,
            "error": self._record,
            "array": self._array,
            "map": self._map,
            "fixed": _fixed,
            "enum": lambda value, kind, _path: value if value in kind["symbols"] else _MISFIT,
        }
        if kind.get("logicalType") == DECIMAL:
            found = _decimal(value)
        elif name in makers:
            found = makers[name](value, kind, path)
        else:
            found = _primitive(value, name, path, is_exact=is_exact)
        if found is _MISFIT:
            raise _misfit(value, kind.get("name") or kind.get("logicalType") or name, path)
        return found

    def _array(self, value: Any, kind: Mapping[str, Any], path: str) -> Any:
        if not isinstance(value, list):
            return _MISFIT
        return [self.fit(each, kind["items"], f"{path}[{at}]", is_exact=False) for at, each in enumerate(value)]

    def _map(self, value: Any, kind: Mapping[str, Any], path: str) -> Any:
        if not isinstance(value, dict):
            return _MISFIT
        return {key: self.fit(each, kind["values"], f"{path}.{key}", is_exact=False) for key, each in value.items()}

    def _record(self, value: Any, kind: Mapping[str, Any], path: str) -> Any:
        if not isinstance(value, dict):
            return _MISFIT
        fields = {field["name"]: field for field in kind["fields"]}
        unknown = sorted(value.keys() - fields.keys())
        if unknown:
            raise SerializationError(f"{_where(path)}{kind['name']} has no field {unknown[0]!r}")
        missing = [name for name, field in fields.items() if name not in value and "default" not in field]
        if missing:
            raise SerializationError(f"{_where(path)}the field {missing[0]!r} of {kind['name']} is missing")
        return {
            name: self.fit(each, fields[name]["type"], f"{path}.{name}", is_exact=False) for name, each in value.items()
        }

    def _of_union(self, value: Any, branches: list[Any], path: str) -> Any:
        """Return the value for the first branch that fits; for a record, fastavro also needs the name of the branch."""
        if value is None and "null" in branches:
            return None
        names = [_branch_name(each) for each in branches]
        if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in names:
            ((name, inner),) = value.items()
            tries = [(inner, branches[names.index(name)], False)]
        else:
            tries = []
        tries = [(value, each, exact) for exact in (True, False) for each in branches] + tries
        failures = []
        for tried, branch, exact in tries:
            try:
                fitted = self.fit(tried, branch, path, is_exact=exact)
            except SerializationError as error:
                failures.append(error)
            else:
                return (
                    (_branch_name(branch), fitted) if isinstance(fitted, dict) and self._is_record(branch) else fitted
                )
        others = [each for each in branches if each != "null"]
        raise failures[-1] if len(others) == 1 and value is not None else _misfit(value, " or ".join(names), path)

    def _is_record(self, branch: Any) -> bool:
        kind = self._named.get(branch, {}) if isinstance(branch, str) else branch
        return kind.get("type") in ("record", "error")


def _branch_name(branch: Any) -> str:
    if not isinstance(branch, dict):
        return str(branch)
    return str(branch["name"] if branch["type"] in _NAMED else branch["type"])


def _primitive(value: Any, kind: str, path: str, *, is_exact: bool) -> Any:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    found = _MISFIT
    if kind in _INTEGERS:
        found = value if is_integer and -_INTEGERS[kind] <= value < _INTEGERS[kind] else _MISFIT
    elif kind in ("float", "double"):
        if isinstance(value, float) or (is_integer and not is_exact and abs(value) <= _DOUBLE_MAX):
            found = float(value)
        elif isinstance(value, str):
            found = _NOT_FINITE.get(value, _MISFIT)
    elif kind == "bytes":
        found = _bytes(value, path) if isinstance(value, str) else _MISFIT
    elif isinstance(value, _PYTHON_TYPES.get(kind, ())):
        found = value
    return found


def _fixed(value: Any, kind: Mapping[str, Any], path: str) -> Any:
    data = _bytes(value, path) if isinstance(value, str) else b""
    return data if isinstance(value, str) and len(data) == kind["size"] else _MISFIT


def _bytes(text: str, path: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise SerializationError(
            f"{_where(path)}a string for bytes has one character per byte, at most U+00FF"
        ) from None


def _decimal(value: Any) -> Any:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return _MISFIT
    try:
        number = Decimal(str(value))
    except (InvalidOperation, ValueError):
        return _MISFIT
    return number if number.is_finite() and abs(number.adjusted()) <= DECIMAL_EXPONENT_MAX else _MISFIT


def _misfit(value: Any, kind: str, path: str) -> SerializationError:
    shown = json.dumps(value, ensure_ascii=False)
    if len(shown) > SHOWN_LETTERS_MAX:
        shown = shown[:SHOWN_LETTERS_MAX] + "..."
    return SerializationError(f"{_where(path)}{shown} is not of type {kind}")


def _where(path: str) -> str:
    return f"at {path.lstrip('.')}: " if path else ""
