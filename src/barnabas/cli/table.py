"""`barnabas table`: shows the state of loaded tables and maintains them, without Spark and brokers."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from barnabas.cli.table_output import Row, show_json, show_table
from barnabas.cli.terminal_text import with_noun
from barnabas.cli.times import show_time_ms
from barnabas.cli.warehouse_options import place_options
from barnabas.clock import SYSTEM_CLOCK
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas.spark.table_place import TablePlace
    from barnabas.spark.table_status import TableStatus


@click.group()
def table() -> None:
    """Show tables that `barnabas load` has created, and maintain them."""
    from barnabas.cli.without_pandas import hide_pandas

    hide_pandas()


@table.command()
@click.argument("name", metavar="[NAMESPACE.]TABLE")
@place_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def status(name: str, place: TablePlace, as_json: bool) -> None:
    """Show the offsets and the event time up to which a table is complete, and its storage.

    \b
    barnabas table status clicks --warehouse ./warehouse
    """
    from barnabas.spark.extras import require
    from barnabas.spark.table_formats import open_place
    from barnabas.spark.table_names import DELETED_KEYS

    found: TableStatus = require("barnabas.spark.table_status").table_status(open_place(place), name)
    if as_json:
        show_json(_as_json(found))
        return
    rows: list[Row] = [
        [topic, str(partition), f"{offset:,}", _time(found.complete.latest_ms.get(TopicPartition(topic, partition)))]
        for topic, loaded in sorted(found.ledger.topics.items())
        for partition, offset in sorted(loaded.next_offsets.items())
    ]
    show_table(["topic", "partition", "loaded up to", "latest event"], rows)
    click.echo(f"complete up to {_time(found.complete.event_time_ms)} (event time)")
    if found.audited_until_ms is not None:
        click.echo(f"has all records produced until {_time(found.audited_until_ms)}, according to the audit")
    if found.complete.at_ms:
        click.echo(f"has all records that were in the log at {_time(found.complete.at_ms)}")
    small = f", {found.small_files:,} of them small" if found.small_files else ""
    if found.value_format == DELETED_KEYS:
        click.echo("memory of the deleted keys of a state table, with a row for each key")
    elif found.upsert is not None:
        click.echo(f"state table with a row for each key, loaded with {found.upsert.describe()}")
    rows_of_table = with_noun(found.records, "record" if found.upsert is None else "row")
    click.echo(f"{rows_of_table} in {with_noun(found.files, 'file')}{small}", nl=False)
    click.echo(f"; {with_noun(found.bytes, 'byte')}, {with_noun(found.snapshots, 'snapshot')}")
    for reason, count in found.last_bad_records.items():
        click.echo(f"last load: {with_noun(count, 'bad record')}: {reason}")
    if found.last_missing:
        click.echo(f"last load: missing offsets, deleted before they were loaded: {json.dumps(found.last_missing)}")


@table.command()
@click.argument("name", metavar="[NAMESPACE.]TABLE")
@place_options
@click.option(
    "--partitions",
    "partitions_max",
    type=click.IntRange(0, 1_000_000),
    default=10,
    show_default=True,
    help="Show the sizes of so many partitions, the largest first.",
)
@click.option(
    "--snapshots",
    "snapshots_max",
    type=click.IntRange(0, 1_000_000),
    default=5,
    show_default=True,
    help="Show so many snapshots, the newest first.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def show(name: str, place: TablePlace, partitions_max: int, snapshots_max: int, as_json: bool) -> None:
    """Show a table: its columns, partitions, sort order, sizes, snapshots, loaded offsets and properties.

    \b
    barnabas table show clicks --warehouse ./warehouse
    """
    from barnabas.spark.table_formats import format_of, open_place

    table_format, store = format_of(place), open_place(place)
    from barnabas.cli.table_show import details_as_json, show_details
    from barnabas.spark.table_details import table_details

    details = table_details(table_format, store, name, snapshots_max)
    if as_json:
        show_json(details_as_json(details, partitions_max))
    else:
        show_details(details, partitions_max)


@table.command()
@click.argument("names", nargs=-1, required=True, metavar="[NAMESPACE.]TABLE...")
@place_options
@click.option(
    "--target-mb", type=click.IntRange(1, 4096), default=128, show_default=True, help="Approximate size of new files."
)
@click.option(
    "--snapshot-days",
    type=click.FloatRange(min=0),
    default=7,
    show_default=True,
    help="Expire snapshots older than this.",
)
@click.option(
    "--orphan-days",
    type=click.FloatRange(min=0),
    default=3,
    show_default=True,
    help="Delete unreferenced files older than this; must exceed the duration of the longest load.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def maintain(
    names: tuple[str, ...],
    place: TablePlace,
    target_mb: int,
    snapshot_days: float,
    orphan_days: float,
    as_json: bool,
) -> None:
    """Merge small files, expire old snapshots, and delete unreferenced files; the offsets of loads are kept.

    \b
    barnabas table maintain clicks --warehouse ./warehouse
    """
    from barnabas.spark.table_formats import format_of, open_place

    store, maintainer = open_place(place), format_of(place).maintainer
    from barnabas.spark.table_store import SMALL_FILE_BYTES
    from barnabas.spark.table_store import maintain as maintain_table

    target_bytes = target_mb * 1024 * 1024
    done = [
        maintain_table(
            maintainer(store, name, SYSTEM_CLOCK),
            target_bytes=target_bytes,
            small_bytes=min(SMALL_FILE_BYTES, target_bytes),
            snapshot_age=timedelta(days=snapshot_days),
            orphan_age=timedelta(days=orphan_days),
        )
        for name in names
    ]
    if as_json:
        show_json([asdict(each) for each in done])
        return
    columns = ["table", "small files", "became", "snapshots expired", "files removed"]
    show_table(columns, [[*asdict(each).values()] for each in done])


def _time(time_ms: int | None) -> str:
    return "nothing" if time_ms is None else show_time_ms(time_ms)


def _as_json(found: TableStatus) -> dict[str, object]:
    return {
        "table": found.table,
        "format": found.value_format,
        "event_time_from": found.event_time,
        "complete_to_event_time_ms": found.complete.event_time_ms,
        "audited_until_ms": found.audited_until_ms,
        "has_log_of_ms": found.complete.at_ms or None,
        "topics": {
            topic: {str(partition): offset for partition, offset in sorted(loaded.next_offsets.items())}
            for topic, loaded in sorted(found.ledger.topics.items())
        },
        "upsert": None if found.upsert is None else found.upsert.describe(),
        "records": found.records,
        "files": found.files,
        "small_files": found.small_files,
        "bytes": found.bytes,
        "snapshots": found.snapshots,
        "fields": dict(found.fields),
        "last_bad_records": dict(found.last_bad_records),
        "last_missing": {topic: dict(gaps) for topic, gaps in found.last_missing.items()},
    }
