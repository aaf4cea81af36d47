"""The options of `barnabas perf`, collected into dataclasses."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from barnabas.cli.connection import Connection
from barnabas.cli.name_completion import complete_topics
from barnabas.cli.options import connection_options, parse_pairs

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
PAYLOADS = ("zeros", "random", "text")
RECORDS_DEFAULT = 1_000_000
BYTES_DEFAULT = 1_000_000_000
"""The limits of a run without --records and --seconds. The run stops when it reaches the first limit."""

Command = Callable[..., Any]
Option = Callable[[Command], Command]


def stacked(*options: Option) -> Option:
    """Return one decorator for several options. The help text lists the options in the given order."""

    def add(command: Command) -> Command:
        return functools.reduce(lambda done, option: option(done), reversed(options), command)

    return add


@dataclass(frozen=True, slots=True)
class Common:
    """The options that all runs have."""

    connection: Connection
    as_json: bool


def common_options(command: Command) -> Command:
    """Add the options of all runs, as the argument `common`."""

    @functools.wraps(command)
    def gathered(connection: Connection, as_json: bool, **others: Any) -> Any:
        return command(common=Common(connection, as_json), **others)

    add = stacked(
        click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead of a table."),
        connection_options,
    )
    return add(gathered)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """The topic to produce to, and the settings of the topic if the command creates it."""

    name: str | None
    partitions: int
    replication_factor: int
    config: dict[str, str]
    keep: bool


def topic_options(command: Command) -> Command:
    """Add the options of a topic that is created if necessary, as the argument `topic`."""

    @functools.wraps(command)
    def gathered(
        topic: str | None,
        partitions: int,
        replication_factor: int,
        configs: dict[str, str],
        keep: bool,
        **others: Any,
    ) -> Any:
        return command(topic=NewTopic(topic, partitions, replication_factor, configs, keep), **others)

    add = stacked(
        click.option(
            "-t",
            "--topic",
            metavar="TOPIC",
            shell_complete=complete_topics,
            help="Topic, created if missing, and kept.  [default: a new topic, deleted at the end]",
        ),
        click.option("--keep", is_flag=True, help="Do not delete the new topic."),
        click.option(
            "-p",
            "--partitions",
            metavar="N",
            type=click.IntRange(min=1),
            default=6,
            show_default=True,
            help="Partitions of a new topic.",
        ),
        click.option(
            "-r",
            "--replication-factor",
            metavar="N",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            help="Replication factor of a new topic.",
        ),
        click.option(
            "-c",
            "--config",
            "configs",
            metavar="NAME=VALUE",
            multiple=True,
            callback=lambda _context, _option, pairs: parse_pairs(pairs),
            help="Setting of a new topic; repeatable.",
        ),
    )
    return add(gathered)


@dataclass(frozen=True, slots=True)
class Records:
    """The kind and number of records to produce."""

    size: int
    payload: str
    value_file: str | None
    records: int | None
    seconds: float | None
    warm_up: int
    acks: str
    compression: str


def acks_option(command: Command) -> Command:
    """Add `--acks`."""
    return click.option(
        "-a",
        "--acks",
        type=click.Choice(["0", "1", "all"]),
        default="all",
        show_default=True,
        help="Required acknowledgement: none, by the leader, by all in-sync replicas.",
    )(command)


def compression_option(command: Command) -> Command:
    """Add `--compression`."""
    return click.option(
        "-z",
        "--compression",
        type=click.Choice(COMPRESSIONS),
        default="none",
        show_default=True,
        help="Compression type.",
    )(command)


def record_options(command: Command) -> Command:
    """Add the options of produced records, as the argument `sent`."""

    @functools.wraps(command)
    def gathered(
        size: int | None,
        payload: str | None,
        value_file: str | None,
        records: int | None,
        seconds: float | None,
        warm_up: int,
        acks: str,
        compression: str,
        **others: Any,
    ) -> Any:
        if value_file is not None and (size is not None or payload is not None):
            raise click.UsageError("--value-file provides the values; leave out --size and --payload")
        size = 100 if size is None else size
        if records is None and seconds is None:
            records = max(1, min(RECORDS_DEFAULT, BYTES_DEFAULT // max(size, 1)))
        sent = Records(size, payload or "text", value_file, records, seconds, warm_up, acks, compression)
        return command(sent=sent, **others)

    add = stacked(
        records_option("1,000,000 or 1 GB"),
        seconds_option,
        warm_up_option,
        click.option(
            "-s", "--size", metavar="BYTES", type=click.IntRange(min=0), help="Size of a value.  [default: 100]"
        ),
        click.option("--payload", type=click.Choice(PAYLOADS), help="Content of values.  [default: text]"),
        click.option(
            "--value-file",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False),
            help="Use the lines of this file as values, repeatedly.",
        ),
        acks_option,
        compression_option,
    )
    return add(gathered)


def records_option(default: str) -> Option:
    """Return the option `--records`; `default` describes its default in the help."""
    return click.option(
        "-n", "--records", metavar="N", type=click.IntRange(min=1), help=f"Stop after N records.  [default: {default}]"
    )


def seconds_option(command: Command) -> Command:
    """Add `--seconds`."""
    return click.option(
        "--seconds", metavar="S", type=click.FloatRange(min=0, min_open=True), help="Stop after this time."
    )(command)


def warm_up_option(command: Command) -> Command:
    """Add `--warm-up`."""
    return click.option(
        "--warm-up",
        metavar="N",
        type=click.IntRange(min=0),
        default=0,
        help="Records before the measurement starts.  [default: none]",
    )(command)
