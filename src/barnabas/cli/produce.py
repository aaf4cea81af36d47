"""`barnabas produce`: sends one record per line (or other delimiter) from standard input or files."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
from click.shell_completion import CompletionItem

from barnabas.cli.connection import Connection
from barnabas.cli.escapes import unescape
from barnabas.cli.line_splitter import read_lines
from barnabas.cli.name_completion import complete_topics
from barnabas.cli.options import connect, connection_options, quiet_option
from barnabas.cli.progress_bar import byte_progress
from barnabas.cli.serdes import (
    KeysAndValues,
    LineError,
    Serdes,
    line_encoder,
    read_schema,
    registry_at,
    serde_options,
)
from barnabas.cli.signals import end_on_sigterm
from barnabas.model import Header

if TYPE_CHECKING:
    from barnabas import Deliveries, Producer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CHUNKS_IN_FLIGHT = 64
"""The maximum number of unacknowledged chunks. At this number, `send_lines` waits for the acknowledgement of the oldest
chunk."""

Lines = Iterable[list[bytes]]


def _complete_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the first argument as a topic, and the others as file names."""
    if context.params.get("topic") is None and not context.params.get("names"):
        return complete_topics(context, parameter, incomplete)
    return [CompletionItem(incomplete, type="file")]


def _bytes(_context: click.Context, _option: click.Parameter, text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        delimiter = unescape(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if not delimiter:
        raise click.BadParameter("the delimiter must not be empty")
    return delimiter


@click.command()
@click.option(
    "-t",
    "--topic",
    metavar="TOPIC",
    shell_complete=complete_topics,
    help="Topic; or give it as the first argument: produce TOPIC [FILE...]",
)
@click.option("-p", "--partition", type=click.IntRange(min=-1), default=-1, help="Partition; -1: by key.")
@click.option("-k", "--key", metavar="KEY", help="Key of all records.")
@click.option("-K", "--key-delimiter", metavar="DELIM", callback=_bytes, help="Each line is a key, DELIM, and a value.")
@click.option(
    "-D",
    "--delimiter",
    metavar="DELIM",
    callback=_bytes,
    default=r"\n",
    show_default=True,
    help=r"Delimiter of records; use \0 with find -print0.",
)
@click.option(
    "-l", "--lines", "more_files", metavar="FILE", multiple=True, help="File, like the argument; -: standard input."
)
@click.option("-H", "--header", "headers", metavar="NAME=VALUE", multiple=True, help="Record header; repeatable.")
@click.option("-z", "--compression", type=click.Choice(CODECS), default="none", help="Compression type.")
@click.option("-Z", "--null", "empty_is_null", is_flag=True, help="Send an empty value or key as null.")
@click.option("-c", "--count", metavar="N", type=click.IntRange(min=1), help="Stop after N records.")
@serde_options
@click.option(
    "--key-schema", metavar="FILE", callback=read_schema, help="Register this schema, and encode keys with it."
)
@click.option(
    "--value-schema", metavar="FILE", callback=read_schema, help="Register this schema, and encode values with it."
)
@quiet_option
@connection_options
@click.argument("names", nargs=-1, metavar="[TOPIC] [FILE...]", shell_complete=_complete_names)
def produce(
    topic: str | None,
    partition: int,
    key: str | None,
    key_delimiter: bytes | None,
    delimiter: bytes,
    more_files: tuple[str, ...],
    headers: tuple[str, ...],
    compression: str,
    empty_is_null: bool,
    count: int | None,
    serdes: Serdes,
    registry_url: str | None,
    key_schema: str | None,
    value_schema: str | None,
    quiet: bool,
    connection: Connection,
    names: tuple[str, ...],
) -> None:
    """Send one record per line, from standard input or from FILEs.

    \b
    echo hello | barnabas produce greetings
    barnabas produce clicks -K : clicks.txt      # lines like member-42:/jobs
    barnabas produce clicks -s value=avro -r http://localhost:8081 clicks.jsonl
    """
    if topic is None:
        if not names:
            raise click.UsageError("name a topic: barnabas produce TOPIC [FILE...]")
        topic, *names_left = names
        names = tuple(names_left)
    if key is not None and key_delimiter is not None:
        raise click.UsageError("give either -k, one key for all records, or -K, a key in each line")
    from barnabas import Producer

    names = (*names, *more_files)
    split = line_splitter(key, key_delimiter, empty_is_null=empty_is_null)
    for part, schema, serde in (("key", key_schema, serdes.key), ("value", value_schema, serdes.value)):
        if schema is not None and serde is None:
            raise click.UsageError(f"--{part}-schema needs the format of the schema: -s {part}=avro|json|protobuf")
    end_on_sigterm()
    encoder = None
    if serdes:
        encoder = line_encoder(serdes, registry_at(connection, registry_url), topic, key_schema, value_schema)
    connect(connection, quiet=quiet).close()
    partition_or_any = None if partition < 0 else partition
    with ExitStack() as stack:
        sources = [_open_source(name, stack) for name in names or ("-",)]
        total_bytes = 0 if quiet else sum(Path(name).stat().st_size for name in names if name != "-")
        producer = stack.enter_context(Producer(connection.settings(compression_type=compression)))
        advance = stack.enter_context(byte_progress(topic, total_bytes))
        lines = (chunk for source in sources for chunk in read_lines(source.read1, delimiter))
        chunks: Iterable[KeysAndValues] = map(split, _counted(_first(lines, count), advance))
        if encoder is not None:
            chunks = encoder.encode(chunks)
        done = send_lines(producer, topic, chunks, partition_or_any, parse_headers(headers))
    if not quiet and (names or sys.stderr.isatty()):
        click.echo(f"produced {done:,} message{'' if done == 1 else 's'} to {topic}", err=True)


def _open_source(name: str, stack: ExitStack) -> BufferedIOBase:
    if name == "-":
        return cast("BufferedIOBase", sys.stdin.buffer)
    return stack.enter_context(Path(name).open("rb"))


def parse_headers(texts: Iterable[str]) -> list[Header]:
    """Return NAME=VALUE texts as record headers; a name without a value has a null value, as in kcat.

    >>> parse_headers(["source=web", "flag"])
    [('source', b'web'), ('flag', None)]
    """
    parts = (text.partition("=") for text in texts)
    return [(name, value.encode() if equals else None) for name, equals, value in parts]


def line_splitter(
    key: str | None, delimiter: bytes | None, *, empty_is_null: bool = False
) -> Callable[[list[bytes]], KeysAndValues]:
    r"""Return the function that splits lines into keys and values.

    A line without the delimiter is a value with a null key, as in kcat.

    >>> line_splitter(None, b":")([b"a:1", b"b"])
    ([b'a', None], [b'1', b'b'])
    """
    split = _splitter(key, delimiter)
    if not empty_is_null:
        return split

    def split_with_null(lines: list[bytes]) -> KeysAndValues:
        keys, values = split(lines)
        return keys and [each or None for each in keys], [each or None for each in values]

    return split_with_null


def _splitter(key: str | None, delimiter: bytes | None) -> Callable[[list[bytes]], KeysAndValues]:
    if delimiter is not None:

        def split(lines: list[bytes]) -> KeysAndValues:
            parts = [line.partition(delimiter) for line in lines]
            keys = [head if found else None for head, found, _ in parts]
            return keys, [tail if found else head for head, found, tail in parts]

        return split
    if key is not None:
        encoded = key.encode()
        return lambda lines: ([encoded] * len(lines), lines)
    return lambda lines: (None, lines)


def send_lines(
    producer: Producer,
    topic: str,
    chunks: Iterable[KeysAndValues],
    partition: int | None,
    headers: list[Header],
) -> int:
    """Send all lines and wait for their acknowledgements; return the number of lines.

    :raises LineError: a line could not be encoded; the lines before it are acknowledged.
    :raises BarnabasError: a line was not acknowledged; later lines may have been.
    """
    waiting: deque[Deliveries] = deque()
    count = 0
    failure: LineError | None = None
    chunks = iter(chunks)
    while True:
        try:
            keys, values = next(chunks)
        except StopIteration:
            break
        except LineError as error:
            failure = error
            break
        every = [headers] * len(values) if headers else None
        waiting.append(producer.send_many(topic, values, keys=keys, partition=partition, headers=every))
        count += len(values)
        if len(waiting) > CHUNKS_IN_FLIGHT:
            waiting.popleft().check()
    producer.flush()
    for deliveries in waiting:
        deliveries.check()
    if failure is not None:
        raise failure
    return count


def _counted(chunks: Lines, advance: Callable[[int], None]) -> Iterator[list[bytes]]:
    for lines in chunks:
        yield lines
        advance(sum(map(len, lines)) + len(lines))


def _first(chunks: Lines, count: int | None) -> Iterator[list[bytes]]:
    """Yield the first `count` lines, or all lines if `count` is None. Do not read more chunks than necessary."""
    left = count
    for lines in chunks:
        yield lines[:left]
        if left is not None and (left := left - len(lines)) <= 0:
            return
