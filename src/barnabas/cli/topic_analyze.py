"""`barnabas topic analyze`: reads a part of a topic, and shows statistics about its records, batches and keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.connection import Connection
from barnabas.cli.consume_span import Anchor, Bound, parse_position, resolve
from barnabas.cli.name_completion import complete_topics
from barnabas.cli.options import (
    connect,
    connection_options,
    json_option,
    partitions_of,
    quiet_option,
    require_topics,
)
from barnabas.cli.progress_bar import Advance, record_progress
from barnabas.cli.table_output import Row, show_json, show_table
from barnabas.cli.terminal_text import with_noun
from barnabas.cli.times import TIME_HELP, show_time_ms
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas.cli.topic_statistics import PartitionStatistics

RECORDS_DEFAULT = 1_000_000
RECORDS_MAX = 1_000_000_000
SECONDS_DEFAULT = 60.0

Ranges = Mapping[TopicPartition, tuple[int, int]]
"""The first offset and the end offset by partition."""


def _position(_context: click.Context, _option: click.Parameter, text: str | None) -> Bound | None:
    try:
        return None if text is None else parse_position(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--from",
    "start",
    metavar="OFFSET|TIME",
    callback=_position,
    help=f"Start: beginning, an offset, -N (N before the end), or a time: {TIME_HELP}.  [default: the newest records]",
)
@click.option("--to", "stop", metavar="OFFSET|TIME", callback=_position, help="End, exclusive.  [default: the end]")
@click.option("-p", "--partition", "number", type=click.IntRange(min=0), metavar="P", help="Only this partition.")
@click.option(
    "--records",
    metavar="N",
    type=click.IntRange(1, RECORDS_MAX),
    default=RECORDS_DEFAULT,
    show_default=True,
    help="Read at most N offsets, the same number in each partition.",
)
@click.option(
    "--seconds",
    metavar="S",
    type=click.FloatRange(min=0, min_open=True),
    default=SECONDS_DEFAULT,
    show_default=True,
    help="Stop reading after S seconds.",
)
@quiet_option
@json_option
@connection_options
def analyze(
    name: str,
    start: Bound | None,
    stop: Bound | None,
    number: int | None,
    records: int,
    seconds: float,
    quiet: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Show statistics about the records, batches, sizes and keys of the topic NAME.

    \b
    barnabas topic analyze clicks                          # the newest million records
    barnabas topic analyze clicks --from -1h --records 100000
    """
    with connect(connection, quiet=quiet) as admin:
        require_topics(admin, [name])
        partitions = [tp for tp in partitions_of(admin, [name]) if number in (None, tp.partition)]
        if not partitions:
            raise click.ClickException(f"topic {name!r} has no partition {number}")
        begins = resolve(start or Bound(Anchor.BEGINNING), partitions, admin)
        ends = resolve(stop or Bound(Anchor.END), partitions, admin)
    each_max = -(-records // len(partitions))
    ranges = {tp: _limited(begins[tp], ends[tp], each_max, is_newest=start is None) for tp in sorted(partitions)}
    wanted = sum(end - begin for begin, end in ranges.values())
    with record_progress(name, 0 if quiet else wanted) as advance:
        analysis = _Reader(connection.admin_settings, seconds, advance).read(ranges)
    _show(name, analysis, as_json=as_json)
    left = sum(max(0, ends[tp] - begins[tp]) for tp in partitions) - analysis.total.offsets
    if analysis.is_late and not quiet:
        click.echo(f"stopped after {seconds:g} s; raise the limit with --seconds", err=True)
    elif left > 0 and not quiet:
        click.echo(f"{with_noun(left, 'further offset')} not read; raise the limit with --records", err=True)


def _limited(begin: int, end: int, count_max: int, *, is_newest: bool) -> tuple[int, int]:
    """Return the part of a range with at most `count_max` offsets: the newest or the oldest ones."""
    end = max(begin, end)
    return (max(begin, end - count_max), end) if is_newest else (begin, min(end, begin + count_max))


@dataclass(slots=True)
class Analysis:
    """The statistics of each partition, and of all.

    :param is_late: True if the time limit ended the analysis.
    """

    partitions: dict[TopicPartition, PartitionStatistics]
    is_late: bool = False

    @property
    def total(self) -> PartitionStatistics:
        from barnabas.cli.topic_statistics import PartitionStatistics

        found = PartitionStatistics(0, 0)
        for each in self.partitions.values():
            found.merge(each)
        return found


class _Reader:
    """Reads ranges of partitions.

    :param advance: called with the number of offsets of each step.
    """

    def __init__(self, settings: dict[str, Any], seconds: float, advance: Advance) -> None:
        self._settings = settings
        self._deadline_s = SYSTEM_CLOCK.monotonic() + seconds
        self._advance = advance

    def read(self, ranges: Ranges) -> Analysis:
        """Return the statistics of the ranges. After the time limit, the last partitions are empty."""
        from barnabas.cli.topic_statistics import PartitionStatistics
        from barnabas.client.range_reader import RangeSource

        analysis = Analysis({tp: PartitionStatistics(*between) for tp, between in ranges.items()})
        source = RangeSource(self._settings)
        try:
            for tp, found in analysis.partitions.items():
                if found.start < found.end:
                    analysis.is_late = not self._read_partition(source, tp, found)
                if analysis.is_late:
                    break
        finally:
            source.close()
        return analysis

    def _read_partition(self, source: Any, tp: TopicPartition, found: PartitionStatistics) -> bool:
        """Add the batches of a partition; return False at the time limit."""
        from barnabas.client.range_reader import RangeReader

        with RangeReader(source, tp.topic, tp.partition, found.start, found.end) as reader:
            try:
                for batches in reader:
                    before = found.offsets
                    found.add(batches, tp.topic, tp.partition)
                    self._advance(found.offsets - before)
                    if SYSTEM_CLOCK.monotonic() >= self._deadline_s:
                        return found.offsets >= found.end - found.start
            except ApiError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                click.echo(f"{tp}: records were deleted during the analysis; its statistics end there", err=True)
        return True


def _show(name: str, analysis: Analysis, *, as_json: bool) -> None:
    from barnabas.cli.topic_statistics import PERCENTILES

    total = analysis.total
    if as_json:
        partitions = [
            {"partition": tp.partition, "start": each.start, "end": each.end, **each.as_json()}
            for tp, each in analysis.partitions.items()
        ]
        show_json({"topic": name, "is_complete": not analysis.is_late, **total.as_json(), "partitions": partitions})
        return
    columns = ["partition", "start", "end", "records", "missing", "bytes", "batches", "ratio", "keys", "records/s"]
    rows: list[Row] = [
        [tp.partition, each.start, each.end, *_figures(each)] for tp, each in analysis.partitions.items()
    ]
    if len(rows) > 1:
        rows.append([None, None, None, *_figures(total)])
    show_table(columns, rows)
    if not total.batches:
        return
    click.echo()
    show_table(["size", *PERCENTILES], list(_sizes(total)))
    click.echo()
    for line in _facts(total):
        click.echo(line)


def _figures(found: PartitionStatistics) -> Sequence[str | int | None]:
    ratio, rates = found.compression_ratio, found.per_second
    return [
        found.records,
        found.missing_offsets,
        found.stored_bytes,
        found.batches,
        None if ratio is None else f"{ratio:.2f}",
        found.keys.estimate,
        None if rates is None else f"{rates[0]:,.1f}",
    ]


def _sizes(total: PartitionStatistics) -> Iterable[Row]:
    from barnabas.cli.topic_statistics import PERCENTILES, percentiles

    for what, sizes in (
        ("bytes of key and value", total.record_sizes),
        ("bytes of a batch", total.batch_sizes),
        ("records of a batch", total.batch_records),
    ):
        found = percentiles(sizes)
        yield [what, *(found.get(each) for each in PERCENTILES)]


def _facts(total: PartitionStatistics) -> Iterable[str]:
    codecs = ", ".join(f"{count:,} {codec}" for codec, count in total.codecs.most_common())
    yield f"batches: {codecs or 'only markers of transactions'}"
    about = "" if total.keys.is_exact else "about "
    yield (
        f"keys: {about}{total.keys.estimate:,} distinct; {with_noun(total.null_keys, 'record')} without a key,"
        f" {with_noun(total.null_values, 'record')} with a null value"
    )
    if total.first_ms is not None and total.last_ms is not None:
        yield f"timestamps: {show_time_ms(total.first_ms)} to {show_time_ms(total.last_ms)}"
    if total.missing_offsets:
        yield f"offsets without a record: {total.missing_offsets:,} (compaction, or aborted transactions' markers)"
