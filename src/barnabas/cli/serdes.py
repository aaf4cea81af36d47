"""The option `-s` of `barnabas consume` and `barnabas produce`: keys and values with schemas as JSON, as in kcat."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.cli.options import check_registry_url
from barnabas.cli.terminal_text import escaped, with_noun
from barnabas.errors import BarnabasError, SerializationError
from barnabas.records import Record

if TYPE_CHECKING:
    from barnabas.cli.connection import Connection
    from barnabas.serialization.json_text import JsonDecoder, JsonEncoder
    from barnabas.serialization.registry_client import SchemaRegistry

KINDS = ("avro", "json", "protobuf")
SERDE_HELP = "avro, json or protobuf, for keys and values; or key=KIND, value=KIND; repeatable"
REPORTS_MAX = 10
"""The maximum number of reported keys and values that cannot be decoded. The others are counted."""
SCHEMA_BYTES_MAX = 4 * 1024 * 1024

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Serde:
    """The format of keys or values.

    :param message_type: the name of a Protobuf message, for encoding; None for the first message of the schema.
    """

    kind: str
    message_type: str | None = None


@dataclass(frozen=True, slots=True)
class Serdes:
    """The formats of keys and values; None for bytes."""

    key: Serde | None = None
    value: Serde | None = None

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Serdes:
        """Return the formats of the texts of `-s`.

        :raises ValueError: a text is not a format, or two texts contradict each other.

        >>> Serdes.parse(["value=protobuf:web.Click"]).value
        Serde(kind='protobuf', message_type='web.Click')
        """
        found: dict[str, Serde] = {}
        for text in texts:
            part, equals, spec = text.partition("=")
            parts = (part,) if equals else ("key", "value")
            kind, _, message_type = (spec if equals else text).partition(":")
            if kind not in KINDS or not {*parts} <= {"key", "value"} or (message_type and kind != "protobuf"):
                raise ValueError(f"{text!r} is not a format; use {SERDE_HELP}")
            for each in parts:
                if each in found:
                    raise ValueError(f"the format of the {each} is given twice")
                found[each] = Serde(kind, message_type or None)
        return cls(**found)

    def __bool__(self) -> bool:
        return self.key is not None or self.value is not None


def serde_options(function: Decorated) -> Decorated:
    """Add `-s` and `--registry`; the command gets the arguments `serdes` and `registry_url`."""
    function = click.option(
        "-r",
        "--registry",
        "registry_url",
        metavar="URL",
        callback=check_registry_url,
        help="Schema registry: https://HOST:PORT. Give credentials with a profile or -X schema.registry.username=NAME."
        "  [default: from the profile]",
    )(function)
    return click.option(
        "-s",
        "--serde",
        "serdes",
        metavar="[key=|value=]KIND",
        multiple=True,
        callback=_parsed,
        help=f"Convert from or to JSON with schemas: {SERDE_HELP}.",
    )(function)


def _parsed(_context: click.Context, _option: click.Parameter, texts: Sequence[str]) -> Serdes:
    try:
        return Serdes.parse(texts)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def registry_at(connection: Connection, url: str | None) -> SchemaRegistry | None:
    """Return the client of the registry; None if neither the command line nor the profile contains its URL."""
    target = connection.registry_target(url)
    if target is None:
        return None
    from barnabas.serialization.registry_client import registry_of

    return registry_of(target)


class RecordDecoder:
    """Decodes the keys and values of records to JSON, for printing.

    A key or a value that cannot be decoded is printed as it is, and reported.

    :param report: prints a line for the user.
    """

    def __init__(self, serdes: Serdes, registry: SchemaRegistry | None, report: Callable[[str], None]) -> None:
        from barnabas.serialization.json_text import json_decoder

        self._key, self._value = (
            None if each is None else json_decoder(each.kind, registry) for each in (serdes.key, serdes.value)
        )
        self._report = report
        self.bad_count = 0
        """The number of keys and values that could not be decoded."""

    def decode(self, record: Record) -> tuple[Record, dict[str, Any]]:
        """Return the record with JSON texts, and the decoded objects by the names `key` and `payload`."""
        objects: dict[str, Any] = {}
        key = self._decoded(record, "key", record.key, self._key, objects)
        value = self._decoded(record, "payload", record.value, self._value, objects)
        return record._replace(key=key, value=value), objects

    def _decoded(
        self, record: Record, name: str, data: bytes | None, decoder: JsonDecoder | None, objects: dict[str, Any]
    ) -> bytes | None:
        if decoder is None or data is None:
            return data
        try:
            found = decoder.decode(data)
            text = json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()
        except (SerializationError, UnicodeEncodeError) as error:
            self.bad_count += 1
            if self.bad_count <= REPORTS_MAX:
                what = "key" if name == "key" else "value"
                where = f"{record.topic}-{record.partition} offset {record.offset}"
                self._report(f"{where}: cannot decode the {what}: {escaped(str(error))}; it is printed as it is")
            return data
        objects[name] = found
        return text

    def finish(self) -> int:
        """Report the number of keys and values that were not reported one by one; return the exit code."""
        if self.bad_count > REPORTS_MAX:
            self._report(f"could not decode {self.bad_count:,} keys or values")
        return 1 if self.bad_count else 0


class LineError(BarnabasError):
    """A line that cannot be sent. The lines before it are sent."""


KeysAndValues = tuple[Sequence[bytes | None] | None, Sequence[bytes | None]]


class LineEncoder:
    """Encodes the JSON texts of lines.

    :param key, value: the encoders; None for bytes.
    """

    def __init__(self, key: JsonEncoder | None, value: JsonEncoder | None) -> None:
        self._key, self._value = key, value

    def encode(self, chunks: Iterable[KeysAndValues]) -> Iterator[KeysAndValues]:
        """Yield the chunks with encoded keys and values.

        :raises LineError: a line is not JSON, or does not fit the schema. The lines before it were yielded.
        """
        number = 0
        for keys, values in chunks:
            done_keys: list[bytes | None] = []
            done_values: list[bytes | None] = []
            last_key: tuple[bytes | None, bytes | None] | None = None
            for at, value in enumerate(values):
                key = keys[at] if keys is not None else None
                try:
                    if last_key is None or last_key[0] != key:  # -k gives all lines the same key
                        last_key = key, _encoded(key, self._key, "key")
                    encoded = _encoded(value, self._value, "value")
                except SerializationError as error:
                    if done_values:
                        yield (None if keys is None else done_keys), done_values
                    sent = "" if number + at == 0 else f"; {with_noun(number + at, 'line')} before it: sent"
                    raise LineError(f"line {number + at + 1:,}: {error}{sent}") from error
                done_keys.append(last_key[1])
                done_values.append(encoded)
            number += len(values)
            yield (None if keys is None else done_keys), done_values


def _encoded(text: bytes | None, encoder: JsonEncoder | None, what: str) -> bytes | None:
    if encoder is None or text is None:
        return text
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"the {what} is not JSON: {error}") from error
    try:
        return encoder.encode(value)
    except SerializationError as error:
        raise SerializationError(f"{what}: {error}") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def line_encoder(
    serdes: Serdes, registry: SchemaRegistry | None, topic: str, key_schema: str | None, value_schema: str | None
) -> LineEncoder:
    """Return the encoder of lines for a topic.

    :param key_schema, value_schema: the texts of schemas to register; None for the latest versions of the subjects.
    :raises click.UsageError: there is no registry.
    :raises BarnabasError: there is no valid schema.
    """
    from barnabas.serialization.json_text import json_encoder

    if registry is None:
        raise click.UsageError("-s needs a schema registry: --registry URL")
    key, value = (
        None if serde is None else json_encoder(serde.kind, registry, f"{topic}-{part}", text, serde.message_type)
        for part, serde, text in (("key", serdes.key, key_schema), ("value", serdes.value, value_schema))
    )
    return LineEncoder(key, value)


def read_schema(_context: click.Context, _option: click.Parameter, path: str | None) -> str | None:
    """Return the text of a schema file.

    :raises click.BadParameter: the file cannot be read, or is not text.
    """
    if path is None:
        return None
    try:
        with click.open_file(path, "rb") as file:
            data = file.read(SCHEMA_BYTES_MAX + 1)
        if len(data) > SCHEMA_BYTES_MAX:
            raise click.BadParameter(f"{path} has more than {SCHEMA_BYTES_MAX:,} bytes")
        return bytes(data).decode()
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.BadParameter(f"{path} is not UTF-8") from None
