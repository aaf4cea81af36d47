"""`barnabas consume`: print a topic's records and follow it, alone or as a member of a group."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import click

from barnabas.cli.message_format import DEFAULT_FORMAT, FORMAT_HELP, compile_format, json_line
from barnabas.cli.options import bootstrap_option, connect, properties_option, require_topics, settings
from barnabas.cli.signals import end_on_sigterm
from barnabas.cli.start_offset import OFFSET_HELP, Anchor, Bound, Span, parse_span, resolve
from barnabas.model import TopicPartition
from barnabas.records import Record

if TYPE_CHECKING:
    from barnabas import Admin, Consumer

POLL_RECORDS_MAX = 5_000
POLL_TIMEOUT_S = 0.25
RESET_OF_ANCHOR = {Anchor.BEGINNING: "earliest", Anchor.END: "latest"}

Render = Callable[[Record], bytes]


def _span(_context: click.Context, _option: click.Parameter, texts: Sequence[str]) -> Span:
    try:
        return parse_span(texts)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _format(_context: click.Context, _option: click.Parameter, text: str) -> Render:
    try:
        return compile_format(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.option("-t", "--topic", "more_topics", metavar="TOPIC", multiple=True, help="As the argument.")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Only this partition.")
@click.option("-o", "--offset", "span", metavar="OFFSET", multiple=True, callback=_span, help=f"{OFFSET_HELP}.")
@click.option("-c", "--count", metavar="N", type=click.IntRange(min=1), help="Stop after N records.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the end instead of waiting for more.")
@click.option(
    "-f", "--format", "render", metavar="FORMAT", callback=_format, default=DEFAULT_FORMAT, help=f"{FORMAT_HELP}."
)
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("-g", "--group", metavar="GROUP", help="Consume as a member of this group; commits offsets.")
@properties_option
@bootstrap_option
@click.argument("topics", nargs=-1, metavar="TOPIC...")
def consume(
    more_topics: tuple[str, ...],
    partition: int | None,
    span: Span,
    count: int | None,
    exit_at_end: bool,
    render: Render,
    as_json: bool,
    group: str | None,
    properties: dict[str, str],
    bootstrap: str,
    topics: tuple[str, ...],
) -> None:
    """Print the records of TOPICs, from the beginning, and follow them.

    \b
    barnabas consume clicks -o -10 -e            # the last ten
    barnabas consume clicks -f '%T %k %s\\n'
    barnabas consume clicks -g ctr               # goes on where the group stopped
    """
    wanted = [*more_topics, *topics]
    if not wanted:
        raise click.UsageError("name a topic: barnabas consume TOPIC")
    if group is not None and (partition is not None or span.start.anchor not in RESET_OF_ANCHOR or span.stop):
        raise click.UsageError(
            "with -g the group says where to read; -p and offsets other than beginning and end do not go with it"
        )
    end_on_sigterm()
    printer = Printer(sys.stdout.buffer, json_line if as_json else render, count)
    with connect(bootstrap) as admin:
        require_topics(admin, wanted)
        partitions = [tp for tp in _partitions(admin, wanted) if partition in (None, tp.partition)]
        if not partitions:
            raise click.ClickException(f"topic {wanted[0]!r} has no partition {partition}")
        stops = _stops(admin, partitions, span, exit_at_end)
        starts = {} if group else resolve(span.start, partitions, admin)
    if group:
        _consume_in_group(settings(bootstrap, properties), group, wanted, span, stops, printer)
    else:
        _consume_alone(settings(bootstrap, properties), starts, stops, printer)


@dataclass(slots=True)
class Printer:
    """Writes rendered records, at most `count_left` of them (None: without end)."""

    output: BinaryIO
    render: Render
    count_left: int | None

    @property
    def done(self) -> bool:
        """Whether no more may be written."""
        return self.count_left == 0

    @property
    def room(self) -> int:
        """How many records to ask for next."""
        return POLL_RECORDS_MAX if self.count_left is None else min(self.count_left, POLL_RECORDS_MAX)

    def write(self, records: Iterable[Record]) -> None:
        """Write the records and flush, so that a pipe sees them at once."""
        rendered = [self.render(record) for record in records]
        if rendered:
            self.output.write(b"".join(rendered))
            self.output.flush()
        if self.count_left is not None:
            self.count_left -= len(rendered)


def _partitions(admin: Admin, topics: Sequence[str]) -> list[TopicPartition]:
    return [
        TopicPartition(found.name, partition.partition)
        for found in admin.describe_topics(list(topics))
        for partition in found.partitions
    ]


def _stops(
    admin: Admin, partitions: Sequence[TopicPartition], span: Span, exit_at_end: bool
) -> dict[TopicPartition, int] | None:
    """Return the offset at which to stop in each partition; None: never."""
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
    with Consumer({"enable.auto.commit": "false", **chosen}) as consumer:
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


def _consume_in_group(
    chosen: dict[str, str],
    group: str,
    topics: Sequence[str],
    span: Span,
    stops: dict[TopicPartition, int] | None,
    printer: Printer,
) -> None:
    from barnabas import Consumer

    reset = {"auto.offset.reset": RESET_OF_ANCHOR[span.start.anchor], "enable.auto.commit": "false"}
    with Consumer({**reset, **chosen}, group=group) as consumer:
        consumer.subscribe(list(topics))
        while not printer.done:
            records = consumer.poll(max_records=printer.room, timeout_s=POLL_TIMEOUT_S)
            printer.write(records)
            if records:
                consumer.commit()
            elif stops is not None and _reached(consumer, stops):
                return


def _before(records: list[Record], stops: dict[TopicPartition, int] | None) -> list[Record]:
    if stops is None:
        return records
    return [record for record in records if record.offset < stops[TopicPartition(record.topic, record.partition)]]


def _reached(consumer: Consumer, stops: dict[TopicPartition, int]) -> bool:
    """Whether this member has partitions, and is at the end of each."""
    assigned = consumer.assignment()
    return bool(assigned) and all(consumer.position(tp) >= stops.get(tp, 0) for tp in assigned)
