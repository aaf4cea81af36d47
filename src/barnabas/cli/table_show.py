"""The output of `barnabas table show`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from barnabas.cli.table_output import Row, show_table
from barnabas.cli.terminal_text import escaped, with_noun
from barnabas.cli.times import show_time_ms
from barnabas.spark.ledger import LoadedTopic
from barnabas.spark.table_details import TableDetails
from barnabas.spark.table_snapshots import OffsetRanges, TableSnapshot

VALUE_LETTERS_MAX = 100


def show_details(details: TableDetails, partitions_max: int) -> None:
    """Print the details of a table as text.

    :param partitions_max: The number of partitions to print.
    """
    for name, text in _facts(details):
        click.echo(f"{name:<11} {escaped(text)}")
    _section(["column", "type"], [[name, kind] for name, kind in details.definition.columns.items()])
    sizes: list[Row] = [
        [each.partition or "(no partitions)", each.files, each.records, each.bytes]
        for each in details.partitions[:partitions_max]
    ]
    _section(["partition", "files", "records", "bytes"], sizes)
    _rest(len(details.partitions) - len(sizes), "partition")
    snapshots: list[Row] = [
        [str(each.id), show_time_ms(each.time_ms), each.operation, each.added_files, each.added_records, _offsets(each)]
        for each in details.snapshots.snapshots
    ]
    _section(["snapshot", "time", "operation", "files", "records", "loaded offsets"], snapshots)
    _rest(details.snapshots.total - len(snapshots), "snapshot")
    _section(["topic", "topic id", "partition", "next offset"], list(_ledger_rows(details)))
    _section(["property", "value"], [[name, _short(value)] for name, value in details.properties.items()])


def _facts(details: TableDetails) -> Iterator[tuple[str, str]]:
    definition = details.definition
    yield "table", details.table
    yield "location", details.location
    values = "of another tool" if details.value_format is None else f"values: {details.value_format}"
    yield "format", f"{definition.table_format} ({values})"
    yield "partitions", definition.partition_by or "none"
    for earlier in definition.earlier:
        yield "  earlier", earlier or "none"
    yield "sort order", definition.sort_by or "none"
    deletes = f", {with_noun(details.delete_files, 'delete file')}" if details.delete_files else ""
    sizes = f"{with_noun(details.records, 'record')}, {with_noun(details.files, 'file')}{deletes}"
    yield "size", f"{sizes}, {with_noun(details.bytes, 'byte')} in {with_noun(len(details.partitions), 'partition')}"
    if details.ledger is None:
        yield "ledger", "none: no load has recorded offsets, or its snapshots have expired"


def _section(columns: list[str], rows: list[Row]) -> None:
    if rows:
        click.echo()
        show_table(columns, rows)


def _rest(count: int, noun: str) -> None:
    if count > 0:
        click.echo(f"... and {with_noun(count, f'more {noun}')}")


def _offsets(snapshot: TableSnapshot) -> str | None:
    texts = [
        f"{topic}-{partition}: {first:,} to {end - 1:,}"
        for topic, ranges in snapshot.loaded.items()
        for partition, (first, end) in ranges.items()
    ]
    more = f", and {with_noun(len(texts) - 3, 'more partition')}" if len(texts) > 3 else ""
    return ", ".join(texts[:3]) + more if texts else None


def _ledger_rows(details: TableDetails) -> Iterator[Row]:
    for topic, loaded in sorted(_topics(details).items()):
        for partition, offset in sorted(loaded.next_offsets.items()):
            yield [topic, loaded.topic_id or None, str(partition), f"{offset:,}"]


def _topics(details: TableDetails) -> dict[str, LoadedTopic]:
    return {} if details.ledger is None else dict(details.ledger.topics)


def _short(text: str) -> str:
    return text if len(text) <= VALUE_LETTERS_MAX else f"{text[:VALUE_LETTERS_MAX]}... ({len(text):,} characters)"


def details_as_json(details: TableDetails, partitions_max: int) -> dict[str, object]:
    """Return the details of a table for JSON.

    :param partitions_max: The number of partitions to return.
    """
    definition = details.definition
    return {
        "table": details.table,
        "location": details.location,
        "table_format": definition.table_format,
        "format": details.value_format,
        "columns": dict(definition.columns),
        "partition_by": definition.partition_by,
        "partition_names": list(definition.partition_names),
        "earlier_partitions": list(definition.earlier),
        "sort_by": definition.sort_by,
        "records": details.records,
        "files": details.files,
        "delete_files": details.delete_files,
        "bytes": details.bytes,
        "partition_count": len(details.partitions),
        "partitions": [
            {"partition": each.partition, "files": each.files, "records": each.records, "bytes": each.bytes}
            for each in details.partitions[:partitions_max]
        ],
        "snapshot_id": definition.snapshot_id,
        "snapshot_count": details.snapshots.total,
        "snapshots": [_snapshot_as_json(each) for each in details.snapshots.snapshots],
        "ledger": None
        if details.ledger is None
        else {
            topic: {
                "id": loaded.topic_id or None,
                "next_offsets": {str(number): offset for number, offset in sorted(loaded.next_offsets.items())},
            }
            for topic, loaded in sorted(_topics(details).items())
        },
        "properties": dict(details.properties),
    }


def _snapshot_as_json(snapshot: TableSnapshot) -> dict[str, object]:
    return {
        "id": snapshot.id,
        "time_ms": snapshot.time_ms,
        "operation": snapshot.operation,
        "is_current": snapshot.is_current,
        "added_files": snapshot.added_files,
        "deleted_files": snapshot.deleted_files,
        "added_records": snapshot.added_records,
        "deleted_records": snapshot.deleted_records,
        "loaded": _ranges_as_json(snapshot.loaded),
    }


def _ranges_as_json(loaded: OffsetRanges) -> dict[str, dict[str, list[int]]]:
    return {
        topic: {str(partition): [first, end] for partition, (first, end) in ranges.items()}
        for topic, ranges in loaded.items()
    }
