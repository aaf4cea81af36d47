"""`barnabas audit`: verifies that each record produced to a topic is stored exactly once, and reports the
differences."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import click

from barnabas.audit.balance import Balance
from barnabas.cli.audit_views import AuditedTable, show_why, show_windows
from barnabas.cli.connection import Connection
from barnabas.cli.http_options import HttpPages, http_option
from barnabas.cli.name_completion import complete_topics
from barnabas.cli.options import connect, connection_options, json_option, named_connection
from barnabas.cli.progress_bar import record_progress
from barnabas.cli.signals import end_on_sigterm
from barnabas.cli.times import TIME_HELP, parse_time_ms
from barnabas.cli.warehouse_options import maybe_place_options
from barnabas.client.audit.log_counting import LogCountCache
from barnabas.client.audit.topic_audit import audit_topic
from barnabas.clock import SYSTEM_CLOCK
from barnabas.spark.topic_tables import TopicTables

if TYPE_CHECKING:
    from barnabas.spark.table_audit import TableAudit
    from barnabas.spark.table_place import TablePlace

WHY = "why"

Show = Callable[[Balance, AuditedTable | None], None]


def _time(_context: click.Context, option: click.Parameter, given: str | None) -> int | None:
    if given is None:
        return None
    try:
        return parse_time_ms(given)
    except ValueError as error:
        raise click.UsageError(f"{option.opts[-1]}: {error}") from None


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[why] TOPIC", shell_complete=complete_topics)
@maybe_place_options
@click.option(
    "--table", metavar="[NAMESPACE.]NAME", help="Name of the table.  [default: the table named after the topic]"
)
@click.option(
    "--source",
    metavar="HOST:PORT[,...]",
    help="Also compare with this cluster, from which TOPIC is mirrored.",
)
@click.option("--source-profile", metavar="NAME", help="Profile with the client settings for that cluster.")
@click.option("--group", metavar="GROUP", help="Also compare the log with the records delivered to this group.")
@click.option("--since", "since_ms", metavar="TIME", callback=_time, help=f"Ignore earlier windows. {TIME_HELP}.")
@click.option(
    "--watch",
    "watch_s",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Repeat at this interval, until Ctrl-C.",
)
@http_option
@json_option
@connection_options
def audit(
    words: tuple[str, ...],
    place: TablePlace | None,
    table: str | None,
    source: str | None,
    source_profile: str | None,
    group: str | None,
    since_ms: int | None,
    watch_s: float | None,
    http: HttpPages | None,
    as_json: bool,
    connection: Connection,
) -> None:
    """Compare the records acknowledged to producers with the log of TOPIC, per minute of event time.

    With --warehouse, also compare the log with the rows of a table; with --source, the records produced to another
    cluster with the mirrored ones; with --group, the log with the records delivered to a group.

    Producers with the setting audit=True report their records; for ship and produce: -X audit=true. `audit why TOPIC`
    shows the sender and the position of lost and duplicated records. The exit code is 1 if records are wrong.

    \b
    barnabas audit clicks
    barnabas audit clicks --warehouse ./warehouse
    barnabas audit clicks --source a:9092 -b b:9092
    barnabas audit why clicks --json
    """
    is_why = len(words) == 2 and words[0] == WHY
    if len(words) != 1 and not is_why:
        raise click.UsageError("give one topic: barnabas audit TOPIC, or barnabas audit why TOPIC")
    if table is not None and place is None:
        raise click.UsageError("--table needs a warehouse: --warehouse DIR or --catalog NAME")
    if http is not None and watch_s is None:
        raise click.UsageError("--http needs a repeated audit: --watch SECONDS")
    origin = None
    if source is not None or source_profile is not None:
        origin = named_connection(source_profile, source, {})
    asked = Audit(words[-1], connection, place, table, origin, group, since_ms)

    def show(found: Balance, audited: AuditedTable | None) -> None:
        if is_why:
            show_why(asked.topic, found, as_json=as_json)
        else:
            show_windows(asked.topic, found, audited, group, as_json=as_json)

    if watch_s is not None:
        _watch(asked, watch_s, http, show)
    found, audited = asked.run()
    show(found, audited)
    if found.is_wrong:
        sys.exit(1)


def _watch(asked: Audit, interval_s: float, http: HttpPages | None, show: Show) -> NoReturn:
    """Repeat the comparison until Ctrl-C, SIGTERM or SIGHUP."""
    from barnabas.cli.audit_metrics import AuditMetrics, tiers_of
    from barnabas.net.status_server import serving_status

    end_on_sigterm()
    tiers = tiers_of(
        has_source=asked.source is not None, has_group=asked.group is not None, has_table=asked.place is not None
    )
    metrics = AuditMetrics(asked.topic, tiers)
    address, prove = (None, None) if http is None else (http.http, http.prover(asked.connection.admin_settings))
    with serving_status(address, metrics.collect, metrics.not_ready, prove=prove):
        while True:
            began_s = SYSTEM_CLOCK.monotonic()
            found, audited = asked.run()
            metrics.note(found, SYSTEM_CLOCK.time_s(), SYSTEM_CLOCK.monotonic() - began_s)
            show(found, audited)
            sys.stdout.flush()
            SYSTEM_CLOCK.sleep(interval_s)


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit of one topic, which may run repeatedly."""

    topic: str
    connection: Connection
    place: TablePlace | None = None
    table: str | None = None
    source: Connection | None = None
    group: str | None = None
    since_ms: int | None = None
    memory: LogCountCache = field(default_factory=LogCountCache)
    _tables: list[TopicTables] = field(default_factory=list)
    """The tables at `place`, which stay open between comparisons."""

    def run(self) -> tuple[Balance, AuditedTable | None]:
        """Compare the current data of all tiers."""
        shown: list[AuditedTable] = []

        def table_side(topic_id: str) -> TableAudit:
            side = self._table_audit(topic_id)
            shown.append(AuditedTable(side.name, side.state))
            return side

        with connect(self.connection) as admin:
            found = audit_topic(
                self.connection.admin_settings,
                admin,
                self.topic,
                since_ms=self.since_ms,
                table_side=None if self.place is None else table_side,
                source=None if self.source is None else self.source.admin_settings,
                group=self.group,
                progress=partial(record_progress, f"reading {self.topic}"),
                memory=self.memory,
            )
        return found, shown[0] if shown else None

    def _table_audit(self, topic_id: str) -> TableAudit:
        assert self.place is not None, "audits without a warehouse do not call this"
        from barnabas.cli.without_pandas import hide_pandas

        hide_pandas()
        if not self._tables:
            names = {} if self.table is None else {self.topic: self.table}
            self._tables.append(TopicTables(self.place, names))
        return self._tables[0].audit_of(self.topic, topic_id)
