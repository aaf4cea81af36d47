"""`barnabas log dump`: prints the contents of segment files for users or programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import click

from barnabas.cli.json_bytes import bytes_field, bytes_value
from barnabas.cli.segment_dump import (
    Damage,
    DumpedBatch,
    OffsetEntry,
    TimeEntry,
    dump_batches,
    dump_offset_index,
    dump_time_index,
)
from barnabas.cli.terminal_text import escaped, escaped_json, with_noun
from barnabas.cli.times import show_time_ms
from barnabas.model import NO_PRODUCER_ID, TopicPartition
from barnabas.records import Record
from barnabas.storage.file_names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, offset_of, partition_of

Found = DumpedBatch | OffsetEntry | TimeEntry | Damage

HEADINGS = {
    LOG_SUFFIX: f"{'position':>10}  {'bytes':>8}  {'offsets':>19}  {'newest record':24}  compression",
    INDEX_SUFFIX: f"{'offset':>19}  {'position':>10}",
    TIME_INDEX_SUFFIX: f"{'offset':>19}  newest record up to there",
}


@click.group()
def log() -> None:
    """Show the contents of log files."""


@log.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--records", "with_records", is_flag=True, help="Also show the records of each batch.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def dump(paths: tuple[Path, ...], with_records: bool, as_json: bool) -> None:
    """Show the contents of segment files: FILE.log, FILE.index, FILE.timeindex, or all logs of a partition directory.

    The command takes no lock and asks no broker, so the log may be in use. It verifies each CRC and compares indexes
    with their log. If a file is damaged, the command shows the position of the damage and exits with code 1.

    \b
    barnabas log dump barnabas-data/clicks-0/00000000000000000000.log --records
    """
    files = [file for path in paths for file in _files(path)]
    damaged = {file: damage for file in files if (damage := _dump(file, with_records, as_json)) is not None}
    for file, damage in damaged.items():
        raise click.ClickException(
            f"{file} is damaged at position {damage.position}: {damage.reason}"
            + (f"; and {len(damaged) - 1} more" if len(damaged) > 1 else "")
        )


def _files(path: Path) -> list[Path]:
    """Return the file, or the segment files of a directory in order.

    :raises OSError: the file does not exist.
    :raises click.ClickException: the path is not a segment file and has none.
    """
    if path.is_dir():
        files = sorted(each for each in path.iterdir() if offset_of(each.name, LOG_SUFFIX) is not None)
        if not files:
            raise click.ClickException(f"{path} has no segments; give a partition directory, such as DATA/clicks-0")
        return files
    path.stat()
    if offset_of(path.name, path.suffix) is None or path.suffix not in HEADINGS:
        raise click.ClickException(
            f"{path} does not have the name of a segment file: 20 digits and .log, .index or .timeindex"
        )
    return [path]


def _dump(path: Path, with_records: bool, as_json: bool) -> Damage | None:
    """Print the contents of a file; return the first damage, or None."""
    first_damage: Damage | None = None
    if not as_json:
        click.echo(f"{path}\n{HEADINGS[path.suffix]}")
    for found in _read(path, with_records):
        if isinstance(found, Damage) and first_damage is None:
            first_damage = found
        if as_json:
            fields = {"file": str(path), **_fields(found, with_records)}
            click.echo(json.dumps(fields, ensure_ascii=False).encode("utf-8", "backslashreplace"))
        else:
            for line in _lines(found):
                click.echo(line)
    return first_damage


def _read(path: Path, with_records: bool) -> Iterator[Found]:
    base_offset = offset_of(path.name, path.suffix)
    assert base_offset is not None, "`_files` has checked the name"
    with ExitStack() as stack:
        if path.suffix == LOG_SUFFIX:
            place = partition_of(path.absolute().parent.name) or TopicPartition("", 0)
            file = stack.enter_context(path.open("rb"))
            yield from dump_batches(file, base_offset, place, with_records=with_records)
            return
        beside = path.with_suffix(LOG_SUFFIX)
        log_file = stack.enter_context(beside.open("rb")) if beside.exists() else None
        dump_index = dump_offset_index if path.suffix == INDEX_SUFFIX else dump_time_index
        yield from dump_index(path.read_bytes(), base_offset, log_file)


def _lines(found: Found) -> Iterable[str]:
    match found:
        case Damage(position, reason):
            yield f"{position:>10}  DAMAGED: {reason}"
        case OffsetEntry(offset, log_position):
            yield f"{offset:>19}  {log_position:>10}"
        case TimeEntry(timestamp_ms, offset):
            yield f"{offset:>19}  {show_time_ms(timestamp_ms)}"
        case DumpedBatch():
            yield _batch_line(found)
            for record in found.records:
                yield _record_line(record)


def _batch_line(batch: DumpedBatch) -> str:
    header = batch.header
    offsets = f"{header.base_offset}-{header.last_offset}"
    line = f"{batch.position:>10}  {header.size:>8}  {offsets:>19}  {show_time_ms(header.max_timestamp_ms):24}"
    line += f"  {header.compression.name.lower()}"
    if header.record_count != header.last_offset_delta + 1:
        line += f", {with_noun(header.record_count, 'record')}"
    if header.leader_epoch:
        line += f", leader epoch {header.leader_epoch}"
    if header.producer_id != NO_PRODUCER_ID:
        line += f", producer {header.producer_id} epoch {header.producer_epoch}"
        line += f" sequence {header.base_sequence}-{header.last_sequence}"
    line += ", transactional" if header.is_transactional else ""
    if header.delete_horizon_ms is not None:
        line += f", tombstones until {show_time_ms(header.delete_horizon_ms)}"
    return line + (", control" if header.is_control else "")


def _record_line(record: Record) -> str:
    headers = " ".join(f"{escaped(name)}={_show(value)}" for name, value in record.headers)
    line = f"{record.offset:>41}  {show_time_ms(record.timestamp_ms):24}  {_show(record.key)} {_show(record.value)}"
    return f"{line} {headers}".rstrip()


def _show(data: bytes | None) -> str:
    """Return bytes as a quoted string on one line, or `null`."""
    if data is None:
        return "null"
    return escaped_json(json.dumps(data.decode("utf-8", "backslashreplace"), ensure_ascii=False))


def _fields(found: Found, with_records: bool) -> Mapping[str, object]:
    match found:
        case Damage(position, reason):
            return {"position": position, "damage": reason}
        case DumpedBatch():
            records = {"records": list(map(_record_fields, found.records))} if with_records else {}
            return {**_batch_fields(found), **records}
        case _:
            return found._asdict()


def _batch_fields(batch: DumpedBatch) -> dict[str, object]:
    header = batch.header
    return {
        "position": batch.position,
        "size": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "leader_epoch": header.leader_epoch,
        "crc": header.crc,
        "compression": header.compression.name.lower(),
        "timestamp_type": header.timestamp_type.name.lower(),
        "base_timestamp_ms": header.base_timestamp_ms,
        "max_timestamp_ms": header.max_timestamp_ms,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
    }


def _record_fields(record: Record) -> dict[str, object]:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **bytes_field("key", record.key),
        **bytes_field("value", record.value),
        "headers": [[name, bytes_value(value)] for name, value in record.headers],
    }
