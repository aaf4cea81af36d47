"""`barnabas consume`: prints the records of topics and waits for new records, with or without a consumer group."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import click

from barnabas.cli.connection import Connection
from barnabas.cli.consume_span import OFFSET_HELP, Anchor, Bound, Span, parse_span, resolve
from barnabas.cli.message_format import FORMAT_HELP, compile_format, json_line, plain_format
from barnabas.cli.name_completion import complete_groups, complete_topics
from barnabas.cli.options import (
    connect,
    connection_options,
    partitions_of,
    quiet_option,
)
from barnabas.cli.serdes import RecordDecoder, Serdes, registry_at, serde_options
from barnabas.cli.signals import end_on_sigterm
from barnabas.cli.standard_output import ending_with_reader
from barnabas.cli.times import TIME_HELP
from barnabas.cli.topic_selection import TOPICS_HELP, TopicSelection, existing_topics, parse_topics
from barnabas.model import TopicPartition
from barnabas.records import Record

if TYPE_CHECKING:
    from barnabas import Admin, Consumer

POLL_RECORDS_MAX = 5_000
POLL_TIMEOUT_S = 0.25
OF_PATTERNS = {"metadata.max.age.ms": "5000"}
"""The setting of consumers that read topics by a regular expression: topics that appear are read soon."""
RESET_OF_ANCHOR = {Anchor.BEGINNING: "earliest", Anchor.END: "latest"}

Render = Callable[[Record], bytes]


def _span(_context: click.Context, _option: click.Parameter, texts: Sequence[str]) -> Span:
    try:
        return parse_span(texts)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.option(
    "-t",
    "--topic",
    "more_topics",
    metavar="TOPIC",
    multiple=True,
    shell_complete=complete_topics,
    help=f"Topic, like the argument TOPIC; {TOPICS_HELP}.",
)
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Read only this partition.")
@click.option(
    "-o",
    "--offset",
    "span",
    metavar="OFFSET",
    multiple=True,
    callback=_span,
    help=f"Start or end: {OFFSET_HELP}. A TIME is {TIME_HELP}. Give the option twice for both.",
)
@click.option("-c", "--count", metavar="N", type=click.IntRange(min=1), help="Stop after N records.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the end instead of waiting for more records.")
@click.option("-f", "--format", "format_", metavar="FORMAT", help=f"Output format of a record: {FORMAT_HELP}.")
@click.option("-J", "--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@click.option("-K", "--key-delimiter", metavar="DELIM", help="Print the key, DELIM, and the value.")
@click.option("-D", "--delimiter", metavar="DELIM", help=r"Delimiter after each record.  [default: \n]")
@click.option("-Z", "--null", "show_null", is_flag=True, help="Print a null key or value as NULL.")
@click.option(
    "-g",
    "-G",
    "--group",
    metavar="GROUP",
    shell_complete=complete_groups,
    help="Consume as a member of this group, and commit offsets.",
)
@serde_options
@click.option("-u", "--unbuffered", is_flag=True, help="Write each record separately instead of in batches.")
@quiet_option
@connection_options
@click.argument("topics", nargs=-1, metavar="TOPIC...", shell_complete=complete_topics)
def consume(
    more_topics: tuple[str, ...],
    partition: int | None,
    span: Span,
    count: int | None,
    exit_at_end: bool,
    format_: str | None,
    as_json: bool,
    key_delimiter: str | None,
    delimiter: str | None,
    show_null: bool,
    group: str | None,
    serdes: Serdes,
    registry_url: str | None,
    unbuffered: bool,
    quiet: bool,
    connection: Connection,
    topics: tuple[str, ...],
) -> int:
    """Print the records of TOPICs from the beginning, and wait for new ones.

    A TOPIC that begins with ^ is a regular expression for the beginning of names. Topics that appear later are read,
    too.

    \b
    barnabas consume clicks -o -10 -e            # the last ten
    barnabas consume clicks -o @-1h              # the last hour, and then new ones
    barnabas consume clicks -o s@2013-01-31 -o e@2013-02-01 -e
    barnabas consume '^clicks\\..*' -f '%t %s\\n'  # clicks.eu, clicks.us ...
    barnabas consume clicks -f '%T %k %s\\n'
    barnabas consume clicks -s avro -r http://localhost:8081
    barnabas consume clicks -g ctr               # resumes at the group's committed offsets
    """
    selection = parse_topics([*more_topics, *topics])
    if not selection.names and not selection.has_patterns:
        raise click.UsageError("name a topic: barnabas consume TOPIC")
    if group is not None and (partition is not None or span.start.anchor not in RESET_OF_ANCHOR or span.stop):
        raise click.UsageError(
            "-g reads from the group's committed offsets: it excludes -p, and -o other than beginning or end"
        )
    if group == "":
        raise click.UsageError("the group name is empty")
    render = _render(format_, as_json, key_delimiter, delimiter, show_null)
    decoder = None
    if serdes:
        decoder = RecordDecoder(serdes, registry_at(connection, registry_url), lambda line: click.echo(line, err=True))
        render = _rendering_decoded(decoder, None if as_json else render)
    end_on_sigterm()
    printer = Printer(sys.stdout.buffer, render, count, unbuffered)
    with ending_with_reader(), connect(connection, quiet=quiet) as admin:
        partitions = _partitions(admin, selection, partition, may_be_empty=not exit_at_end and span.stop is None)
        stops = _stops(admin, partitions, span, exit_at_end)
        starts = {} if group else resolve(span.start, partitions, admin)
    if not partitions and not quiet:
        click.echo(f"no topic matches {selection} yet; waiting for one", err=True)
    if group:
        _consume_in_group(connection.settings(), group, selection, span, stops, printer)
    elif selection.has_patterns and stops is None:
        wanted = WantedPartitions(starts, partition, span.start)
        _consume_matching(connection.settings(), selection, wanted, printer)
    else:
        _consume_alone(connection.settings(), starts, stops, printer)
    return 0 if decoder is None else decoder.finish()


def _rendering_decoded(decoder: RecordDecoder, render: Render | None) -> Render:
    """Return the function that decodes a record and renders it; as one line of JSON if `render` is None."""

    def render_decoded(record: Record) -> bytes:
        decoded, objects = decoder.decode(record)
        return json_line(record, objects) if render is None else render(decoded)

    return render_decoded


def _partitions(
    admin: Admin, selection: TopicSelection, partition: int | None, *, may_be_empty: bool
) -> list[TopicPartition]:
    """Return the partitions to read.

    :param partition: the number of the only partition to read of each topic; None for all.
    :param may_be_empty: return an empty list if no topic matches the regular expressions: topics may appear later.
    :raises click.ClickException: a topic or the partition does not exist, or no topic matches.
    """
    wanted = existing_topics(admin, selection, may_be_empty=may_be_empty)
    partitions = [tp for tp in partitions_of(admin, wanted) if partition in (None, tp.partition)]
    if wanted and not partitions and not (may_be_empty and selection.has_patterns):
        raise click.ClickException(f"topic {wanted[0]!r} has no partition {partition}")
    return partitions


def _render(
    format_: str | None, as_json: bool, key_delimiter: str | None, delimiter: str | None, show_null: bool
) -> Render:
    if sum((format_ is not None, as_json, key_delimiter is not None or delimiter is not None)) > 1:
        raise click.UsageError("give only one output format: -f, -J, or -K and -D")
    if as_json:
        return json_line
    if format_ is None:
        format_ = plain_format(key_delimiter, r"\n" if delimiter is None else delimiter)
    try:
        return compile_format(format_, show_null=show_null, for_terminal=sys.stdout.isatty())
    except ValueError as error:
        raise click.UsageError(str(error)) from None


@dataclass(slots=True)
class Printer:
    """Formats records and writes them to the output, at most `count_left` records (None: no limit)."""

    output: BinaryIO
    render: Render
    count_left: int | None
    unbuffered: bool = False

    @property
    def done(self) -> bool:
        """True if the maximum number of records is written."""
        return self.count_left == 0

    @property
    def room(self) -> int:
        """The maximum number of records to poll next."""
        return POLL_RECORDS_MAX if self.count_left is None else min(self.count_left, POLL_RECORDS_MAX)

    def write(self, records: Iterable[Record]) -> None:
        """Write the records and flush the output."""
        rendered = [self.render(record) for record in records]
        for piece in rendered if self.unbuffered else [b"".join(rendered)]:
            self.output.write(piece)
            self.output.flush()
        if self.count_left is not None:
            self.count_left -= len(rendered)


def _stops(
    admin: Admin, partitions: Sequence[TopicPartition], span: Span, exit_at_end: bool
) -> dict[TopicPartition, int] | None:
    """Return the offset of each partition at which the command stops; None if it never stops."""
    if span.stop is not None:
        return resolve(span.stop, partitions, admin)
    return resolve(Bound(Anchor.END), partitions, admin) if exit_at_end else None


def _consume_alone(
    chosen: dict[str, str],
    starts: dict[TopicPartition, int],
    stops: dict[TopicPartition, int] | None,
    printer: Printer,
) -> None:
    from barnabas import Consumer

    open_ends = [tp for tp in starts if stops is None or starts[tp] < stops[tp]]
    with Consumer({"enable.auto.commit": "false", **chosen}) as consumer, ending_with_reader():
        consumer.assign(open_ends)
        for tp in open_ends:
            consumer.seek(tp, starts[tp])
        while open_ends and not printer.done:
            records = consumer.poll(max_records=printer.room, timeout_s=POLL_TIMEOUT_S)
            printer.write(_before(records, stops))
            if stops is not None:
                at_end = [tp for tp in open_ends if consumer.position(tp) >= stops[tp]]
                consumer.pause(*at_end)
                open_ends = [tp for tp in open_ends if tp not in at_end]


@dataclass(frozen=True, slots=True)
class WantedPartitions:
    """The partitions that a command without a group reads while new topics appear.

    :param starts: the start offsets of the partitions that existed at the start.
    :param number: the number of the only partition to read of each topic; None for all.
    :param start: the start that the user has given. A new topic has no records before it, except by offset or time.
    """

    starts: Mapping[TopicPartition, int]
    number: int | None
    start: Bound

    def place(self, consumer: Consumer, gained: Iterable[TopicPartition]) -> None:
        """Seek in partitions that the consumer has gained, and pause those that are not wanted."""
        of_later_topics = []
        for tp in gained:
            if self.number not in (None, tp.partition):
                consumer.pause(tp)
                consumer.seek(tp, 0)
            elif tp in self.starts:
                consumer.seek(tp, self.starts[tp])
            else:
                of_later_topics.append(tp)
        if of_later_topics and self.start.anchor in (Anchor.TIMESTAMP, Anchor.OFFSET):
            for tp, offset in resolve(self.start, of_later_topics, consumer).items():
                consumer.seek(tp, offset)


def _consume_matching(
    chosen: dict[str, str], selection: TopicSelection, wanted: WantedPartitions, printer: Printer
) -> None:
    """Read the topics that match, and those that appear later."""
    from barnabas import Consumer

    own = {"auto.offset.reset": "earliest", "enable.auto.commit": "false", **OF_PATTERNS}
    with Consumer({**own, **chosen}) as consumer, ending_with_reader():
        consumer.subscribe(pattern=selection.full_pattern(), on_assign=lambda gained: wanted.place(consumer, gained))
        while not printer.done:
            printer.write(consumer.poll(max_records=printer.room, timeout_s=POLL_TIMEOUT_S))


def _consume_in_group(
    chosen: dict[str, str],
    group: str,
    selection: TopicSelection,
    span: Span,
    stops: dict[TopicPartition, int] | None,
    printer: Printer,
) -> None:
    from barnabas import Consumer

    reset = {"auto.offset.reset": RESET_OF_ANCHOR[span.start.anchor], "enable.auto.commit": "false"}
    if selection.has_patterns:
        reset |= OF_PATTERNS
    joined = threading.Event()
    with Consumer({**reset, **chosen}, group=group) as consumer, ending_with_reader():
        consumer.subscribe(
            () if selection.has_patterns else selection.names,
            pattern=selection.full_pattern() if selection.has_patterns else None,
            on_assign=lambda _tps: joined.set(),
            on_revoke=lambda _tps: joined.clear(),
        )
        while not printer.done:
            records = consumer.poll(max_records=printer.room, timeout_s=POLL_TIMEOUT_S)
            printer.write(records)
            if records:
                consumer.commit()
            elif stops is not None and _reached(consumer, stops, joined.is_set()):
                return


def _before(records: list[Record], stops: dict[TopicPartition, int] | None) -> list[Record]:
    if stops is None:
        return records
    return [record for record in records if record.offset < stops[TopicPartition(record.topic, record.partition)]]


def _reached(consumer: Consumer, stops: dict[TopicPartition, int], has_joined: bool) -> bool:
    """Return whether this member has reached the stop offset of each assigned partition. The result is true for a
    member without partitions."""
    assigned = consumer.assignment()
    return (has_joined or bool(assigned)) and all(consumer.position(tp) >= stops.get(tp, 0) for tp in assigned)
