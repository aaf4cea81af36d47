"""`barnabas ship`: ships log files to a topic, one record per line, with at-least-once delivery.

Each file continues where the last run stopped, and is followed like `tail -F`, through rotation and truncation, until
Ctrl-C or SIGTERM. With `--exit` the command stops at the ends of the files.
"""

from __future__ import annotations

import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.connection import Connection
from barnabas.cli.file_tail import FollowedPath, Piece
from barnabas.cli.name_completion import complete_topics
from barnabas.cli.options import connect, connection_options
from barnabas.cli.oversized_lines import MODES, OversizedLineError, OversizedLines, record_bytes_max
from barnabas.cli.produce import CHUNKS_IN_FLIGHT, CODECS, parse_headers
from barnabas.cli.progress_bar import byte_progress
from barnabas.cli.retention_check import RetentionCheck, create_topic_for_old_records
from barnabas.cli.ship_state import ShipState, default_state_folder
from barnabas.cli.signals import end_on_sigterm
from barnabas.cli.terminal_text import escaped
from barnabas.clock import SYSTEM_CLOCK, Clock, GuardedClock
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import Header

if TYPE_CHECKING:
    from barnabas import Admin, Deliveries, Producer
    from barnabas.formats.line_times import LineTimes

LOOK_AGAIN_S = 0.2
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
SAVE_INTERVAL_S = 1.0
REPORT_INTERVAL_S = 60.0
CLOSE_TIMEOUT_S = 5.0
EXIT_FAILED = 1


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "-t",
    "--topic",
    metavar="TOPIC",
    required=True,
    shell_complete=complete_topics,
    help="Topic, created if it does not exist.",
)
@click.option(
    "-F/-e",
    "--follow/--exit",
    default=True,
    help="Follow growing, rotated and truncated files, or exit at their ends.  [default: follow]",
)
@click.option(
    "--partitions", type=click.IntRange(min=1), default=1, show_default=True, help="Partitions of a new topic."
)
@click.option("-k", "--key", metavar="KEY", help="Key of all records, which puts them into one partition.")
@click.option("-H", "--header", "headers", metavar="NAME=VALUE", multiple=True, help="Record header; repeatable.")
@click.option("-z", "--compression", type=click.Choice(CODECS), default="none", help="Compression type.")
@click.option(
    "--format",
    "value_format",
    metavar="FORMAT",
    default="raw",
    help="Format of the lines: raw, json, or lines:PATTERN with a pattern as in `barnabas load`.",
)
@click.option(
    "--event-time",
    metavar="WHERE",
    help="Source of record timestamps: record (the time of shipping), line (the first time in it), a JSON field or "
    "group of the pattern, or FIELD:UNIT (s, ms, us, ns).  [default: record; for a pattern, the group `time`]",
)
@click.option(
    "--timezone",
    metavar="ZONE",
    help="Time zone of times without one, such as Europe/Berlin or +02:00.  [default: UTC]",
)
@click.option(
    "--oversized",
    type=click.Choice(MODES),
    default="skip",
    show_default=True,
    help="Handling of lines above the record size limit: skip and report the line, split it into several records, or "
    "fail.",
)
@click.option(
    "--state", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), help="Directory for the read positions."
)
@connection_options
def ship(
    files: tuple[Path, ...],
    topic: str,
    follow: bool,
    partitions: int,
    key: str | None,
    headers: tuple[str, ...],
    compression: str,
    value_format: str,
    event_time: str | None,
    timezone: str | None,
    oversized: str,
    state: Path | None,
    connection: Connection,
) -> None:
    """Ship log files to a topic, one record per line, from where the last run stopped.

    \b
    barnabas ship /var/log/nginx/access.log --topic access
    barnabas ship --exit access.log --topic access
    barnabas ship --exit access.log --topic access --format lines:combined
    """
    from barnabas import Producer

    times = _line_times(value_format, event_time, timezone)

    if not follow:
        for path in files:
            path.stat()
    end_on_sigterm()
    given_headers = parse_headers(headers)
    clock = GuardedClock(SYSTEM_CLOCK)
    with connect(connection) as admin:
        topic_id = _topic_id(admin, topic, partitions, times) or re.sub(r"[^\w.-]", "_", connection.bootstrap)
        retention = None if times is None else RetentionCheck.of_topic(admin, topic)
        limit, taken = record_bytes_max(admin, topic, connection.properties, key, given_headers)
    with ExitStack() as stack:
        folder = state or default_state_folder()
        states = [stack.enter_context(ShipState(folder, topic, topic_id, path)) for path in files]
        producer = stack.enter_context(Producer(connection.settings(compression_type=compression)))
        shipper = Shipper(
            producer,
            topic,
            states,
            key,
            given_headers,
            clock,
            times,
            lines=OversizedLines(limit, oversized, _report, taken),
            retention=retention,
            strips_cr=value_format != "raw",
        )
        stack.callback(shipper.close)
        _report_resumed(shipper)
        with byte_progress(topic, shipper.bytes_left()) as advance:
            shipper.read_to_end(advance)
        if follow:
            click.echo(f"shipped {shipper.line_count:,} lines to {topic}; following until Ctrl-C", err=True)
            shipper.report_retention()
            shipper.follow(threading.Event())
        shipper.finish()
        shipper.report_retention()
    lines = "line" if shipper.line_count == 1 else "lines"
    click.echo(f"shipped {shipper.line_count:,} {lines} ({shipper.byte_count:,} bytes) to {topic}", err=True)
    if shipper.without_time:
        click.echo(
            f"{shipper.without_time:,} of them have no time in the line: their timestamp is the time of shipping",
            err=True,
        )
    if shipper.oversized_count:
        what = "skipped" if oversized == "skip" else "split"
        click.echo(f"{what} lines of more than {limit:,} bytes: {shipper.oversized_count:,}", err=True)
    if shipper.problem_count:
        raise click.exceptions.Exit(EXIT_FAILED)


def _report(line: str) -> None:
    click.echo(escaped(line), err=True)


def _line_times(value_format: str, event_time: str | None, timezone: str | None) -> LineTimes | None:
    """Return the parser for timestamps of lines. Return None, without importing pyarrow, if records get the current
    time."""
    if value_format == "raw" and event_time in (None, "record") and timezone is None:
        return None
    from barnabas.records.arrow import import_pyarrow

    import_pyarrow()
    from barnabas.formats.line_times import LineTimes

    return LineTimes.of(value_format, event_time, timezone)


class Shipper:
    """Reads followed paths and produces their lines; records a position once all lines before it are acknowledged.

    :param states: one entered state per path.
    :param times: parses the timestamps of lines; None to use the time of shipping.
    :param lines: skips, splits or refuses lines above the record size limit.
    :param retention: counts records older than the topic's retention; None to skip the check.
    :param strips_cr: True to remove a carriage return at the end of a line.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str,
        states: Iterable[ShipState],
        key: str | None,
        headers: list[Header],
        clock: Clock,
        times: LineTimes | None = None,
        *,
        lines: OversizedLines,
        retention: RetentionCheck | None = None,
        strips_cr: bool = False,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._key = None if key is None else key.encode()
        self._headers = headers
        self._clock = clock
        self._lines = lines
        self._retention = retention
        self._strips_cr = strips_cr
        self._sources = [(state, _followed(state, clock)) for state in states]
        self._waiting: deque[tuple[Deliveries, ShipState, Piece, list[int] | None]] = deque()
        self._saved_at = clock.monotonic()
        self._retention_reported_at = clock.monotonic()
        self.line_count = 0
        self.byte_count = 0
        self.without_time = 0
        self._times = times

    @property
    def sources(self) -> list[tuple[ShipState, FollowedPath]]:
        """The followed paths with their states."""
        return self._sources

    def bytes_left(self) -> int:
        """Return the number of bytes to ship, from the current sizes of the files."""
        return sum(followed.bytes_left() for _, followed in self._sources)

    @property
    def oversized_count(self) -> int:
        """The number of lines above the record size limit."""
        return self._lines.count

    @property
    def problem_count(self) -> int:
        """The number of reported files that could not be read completely."""
        return sum(followed.problem_count for _, followed in self._sources)

    def report_retention(self) -> None:
        """Report the number of records older than the topic's retention since the last call."""
        self._retention_reported_at = self._clock.monotonic()
        if self._retention is not None and (line := self._retention.take_report()) is not None:
            _report(line)

    def read_to_end(self, advance: Callable[[int], None] = lambda _bytes: None) -> bool:
        """Ship all available lines; return whether there were any lines."""
        before = self.line_count
        for state, followed in self._sources:
            for piece in followed.read_all():
                self._send(state, piece)
                advance(piece.byte_count)
        return self.line_count > before

    def follow(self, stop: threading.Event) -> None:
        """Ship new lines until `stop` is set or the process is stopped."""
        while not stop.is_set():
            if not self.read_to_end():
                self._settle()
                if self._clock.monotonic() - self._retention_reported_at >= REPORT_INTERVAL_S:
                    self.report_retention()
                stop.wait(LOOK_AGAIN_S)

    def finish(self) -> None:
        """Ship the last line of each file even without a line feed, wait for all acknowledgements, and save the
        positions."""
        for state, followed in self._sources:
            for piece in followed.finish():
                self._send(state, piece)
        self._settle()

    def close(self) -> None:
        """Wait up to CLOSE_TIMEOUT_S for acknowledgements, save the acknowledged positions, and close the files."""
        with suppress(BarnabasError):
            self._producer.flush(CLOSE_TIMEOUT_S)
        while self._waiting and _is_acknowledged(self._waiting[0][0]):
            self._note_oldest()
        self._save()
        for _, followed in self._sources:
            followed.close()

    def _send(self, state: ShipState, piece: Piece) -> None:
        lines = self._lines_of(piece)
        try:
            values, places = self._lines.fitting(piece, lines)
        except OversizedLineError:
            self._settle()
            raise
        timed = lines if places is None else [lines[at] for at in places]
        deliveries = self._send_values(values, timed)
        self._waiting.append((deliveries, state, piece, places))
        self.line_count += len(values)
        self.byte_count += piece.byte_count
        while len(self._waiting) > CHUNKS_IN_FLIGHT:
            self._note_oldest()
        if self._clock.monotonic() - self._saved_at >= SAVE_INTERVAL_S:
            self._save()

    def _lines_of(self, piece: Piece) -> list[bytes]:
        return [line.removesuffix(b"\r") for line in piece.lines] if self._strips_cr else piece.lines

    def _send_values(self, values: list[bytes], timed: list[bytes]) -> Deliveries:
        """Send values with the timestamps of their lines."""
        count = len(values)
        timestamps_ms = None
        if self._times is not None and values:
            now_ms = self._clock.time_ms()
            timestamps_ms, without_time = self._times.times_ms(timed, now_ms)
            self.without_time += without_time
            if self._retention is not None:
                self._retention.count(timestamps_ms, now_ms)
        return self._producer.send_many(
            self._topic,
            values,
            keys=None if self._key is None else [self._key] * count,
            timestamps_ms=timestamps_ms,
            headers=[self._headers] * count if self._headers else None,
        )

    def _settle(self) -> None:
        if self._waiting:
            self._producer.flush()
        while self._waiting:
            self._note_oldest()
        for state, followed in self._sources:
            for mark, replaces in followed.take_copies():
                state.note(mark, replaces)
            for mark in followed.done_marks:
                state.forget(mark)
            followed.done_marks.clear()
            state.note_known(followed.known_marks)
        self._save()

    def _note_oldest(self) -> None:
        deliveries, state, piece, places = self._waiting[0]
        if deliveries.exception() is not None:
            self._replace_refused(deliveries, piece, places)
        self._waiting.popleft()
        state.note_piece(piece)

    def _replace_refused(self, deliveries: Deliveries, piece: Piece, places: list[int] | None) -> None:
        """Skip or split the lines that exceed the broker's limit even when compressed.

        :raises BarnabasError: a line failed for another reason, or the mode for oversized lines is `fail`.
        """
        errors = [delivery.exception() for delivery in deliveries]
        for failed in errors:
            if failed is not None and not (isinstance(failed, ApiError) and failed.code in TOO_LARGE):
                raise failed
        lines = self._lines_of(piece)
        refused = {at if places is None else places[at] for at, failed in enumerate(errors) if failed is not None}
        for at in sorted(refused):
            if not self._lines.may_be_refused(lines[at]):
                raise OversizedLineError(f"{_place(piece)}: the broker refuses a record: {deliveries.exception()}")
            parts = self._lines.parts(piece, at, lines[at])
            self._send_values(parts, [lines[at]] * len(parts)).check()
            self.line_count += len(parts)
        self.line_count -= sum(failed is not None for failed in errors)

    def _save(self) -> None:
        self._saved_at = self._clock.monotonic()
        for state, _ in self._sources:
            state.save()


def _is_acknowledged(deliveries: Deliveries) -> bool:
    return deliveries.done() and deliveries.exception() is None


def _place(piece: Piece) -> str:
    lines = f"lines {piece.first_line:,} to {piece.first_line + len(piece.lines) - 1:,}, " if piece.first_line else ""
    return f"{piece.path}: {lines}bytes {piece.start:,} to {piece.start + piece.byte_count:,}"


def _followed(state: ShipState, clock: Clock) -> FollowedPath:
    return FollowedPath(
        state.path, state.marks, clock, known=state.known, report=_report, saved_at_ns=state.saved_at_ns
    )


def _topic_id(admin: Admin, topic: str, partitions: int, times: LineTimes | None) -> str:
    """Return the topic id, creating the topic if necessary; empty if the brokers have no topic ids."""
    if topic not in admin.list_topics():
        try:
            if times is None:
                admin.create_topic(topic, partitions)
            else:
                create_topic_for_old_records(admin, topic, partitions, _report)
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
    (found,) = admin.describe_topics([topic])
    return found.id


def _report_resumed(shipper: Shipper) -> None:
    for state, followed in shipper.sources:
        for mark in followed.lost_marks:
            state.forget(mark)
            _report(
                f"{followed.path}: the file shipped up to byte {mark.position:,} was deleted or overwritten, and no "
                "copy of it was found; lines written to it after that are not shipped"
            )
        state.note_known(followed.known_marks)
        state.save()
        for mark in state.marks:
            if sys.stderr.isatty() and mark.position:
                click.echo(f"{followed.path}: resuming at byte {mark.position:,}", err=True)
