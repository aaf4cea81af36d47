"""A topic of changes that is loaded without brokers and Spark, and the dict that a state table must equal."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa

from barnabas.formats.upsert_rules import UpsertRules
from barnabas.records import BatchBuilder
from barnabas.records.arrow import ArrowReader
from barnabas.records.header import stamp
from barnabas.spark.load_plan import TopicState
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.tables import scan_table
from tests.support.loads_without_spark import Lake

Row = dict[str, Any]
Key = tuple[Any, ...]
START_MS = 1_700_000_000_000


class Sent(NamedTuple):
    key: bytes | None
    value: bytes | None
    time_ms: int


class Variant(NamedTuple):
    """The rules of a table, and the form of its changes.

    :param in_order: True if the changes of a key are in its partition, and arrive in their order.
    """

    rules: UpsertRules
    in_order: bool


VARIANTS = {
    "plain": Variant(UpsertRules.of("id"), True),
    "plain by time": Variant(UpsertRules.of("id", order_by="ts"), False),
    "plain with operations": Variant(UpsertRules.of("id", op="op", order_by="seq"), False),
    "two keys": Variant(UpsertRules.of("region,id", op="op", delete="op=d"), True),
    "debezium": Variant(UpsertRules.of("id", envelope="debezium"), True),
    "debezium by position": Variant(UpsertRules.of("id", envelope="debezium", order_by="source.lsn"), False),
    "maxwell": Variant(UpsertRules.of("id", envelope="maxwell", order_by="xid"), False),
}


class ChangeLake(Lake):
    """A topic of changes with keys, and tables in a folder."""

    def __init__(self, folder: Path, table_format: str, partitions: int) -> None:
        super().__init__(folder, table_format)
        self.sent: list[list[Sent]] = [[] for _ in range(partitions)]

    def describe(self, _admin: object, _topics: object) -> list[TopicState]:
        ends = dict(enumerate(map(len, self.sent)))
        return [TopicState("t", self.topic_id, dict.fromkeys(ends, 0), ends)]

    def read(self, wanted: OffsetRange, *_arguments: object, **_options: object) -> Iterator[pa.RecordBatch]:
        builder, reader = BatchBuilder(), ArrowReader()
        for record in self.sent[wanted.partition][wanted.start_offset : wanted.end_offset]:
            builder.append(record.time_ms, record.key, record.value, [])
        built = bytearray(builder.build())
        stamp(built, 0, wanted.start_offset, 0)
        reader.read(built, "t", wanted.partition)
        yield reader.finish()

    def table_rows(self) -> list[Row]:
        if not self.open().current_table("t").exists:
            return []
        found = scan_table(self.folder, "t", table_format=self.place.table_format)
        return [row for batch in found for row in batch.to_pylist()]


class ChangeModel:
    """Draws changes of few rows, sends them to a lake, and knows the rows that remain."""

    def __init__(self, lake: ChangeLake, variant: Variant, draw: random.Random) -> None:
        self.rows: dict[Key, Row] = {}
        self.fields = ["id", "region", "text", "number"]
        self._lake = lake
        self._variant = variant
        self._draw = draw
        self._number = 0
        self._newest: dict[Key, int] = {}
        self._late: list[tuple[int, list[Sent]]] = []
        self._recent: list[tuple[int, list[Sent]]] = []

    def change(self) -> None:
        """Make one change; it may arrive later, and others may arrive again."""
        draw, rules = self._draw, self._variant.rules
        self._number += 1
        row: Row = {"id": draw.randrange(25), "region": draw.choice(("eu", "us")) if len(rules.keys) > 1 else "eu"}
        key = tuple(row[name] for name in rules.keys)
        before = self.rows.get(key)
        is_delete = before is not None and draw.random() < 0.25
        for name in self.fields[2:]:
            if draw.random() < 0.8:
                row[name] = f"{name} é {draw.randrange(1_000)}" if name.startswith("t") else draw.randrange(1_000_000)
        if is_delete:
            del self.rows[key]
        else:
            self.rows[key] = row
        partition = crc32(repr(key).encode()) % len(self._lake.sent)
        if not self._variant.in_order:
            partition = draw.randrange(len(self._lake.sent))
        sent = partition, self._records(row, before, is_delete=is_delete)
        if not self._variant.in_order and draw.random() < 0.15:
            self._late.append(sent)
        else:
            self._send(sent)
        if draw.random() < 0.05:
            self._repeat()
        if self._late and draw.random() < 0.1:
            self._send(self._late.pop(draw.randrange(len(self._late))))

    def bad(self) -> None:
        """Send a record that changes no row; not as the first record, because a new table needs a row."""
        if not self._recent:
            return
        partition = self._draw.randrange(len(self._lake.sent))
        self._lake.sent[partition].append(
            self._draw.choice(
                (Sent(b"k", b"{", START_MS), Sent(b"k", b'"text"', START_MS), Sent(b'{"k": 1}', None, START_MS))
            )
        )

    def grow(self) -> None:
        """Add a field to later rows."""
        self.fields.append(f"{self._draw.choice('tn')}{len(self.fields)}")

    def settle(self) -> None:
        """Send all changes that are late."""
        while self._late:
            self._send(self._late.pop())

    def _send(self, sent: tuple[int, list[Sent]]) -> None:
        partition, records = sent
        self._lake.sent[partition] += records
        self._recent = [*self._recent[-9:], sent]

    def _repeat(self) -> None:
        """Send the last changes again, up to the newest one."""
        for partition, records in self._recent[-self._draw.randrange(1, 10) :]:
            self._lake.sent[partition] += records

    def _records(self, row: Row, before: Row | None, *, is_delete: bool) -> list[Sent]:
        rules, time_ms = self._variant.rules, START_MS + self._number
        key = _text({name: row[name] for name in rules.keys})
        source = {"lsn": self._number, "ts_ms": time_ms, "table": "t"}
        if rules.envelope == "debezium":
            event = {"before": before, "after": None if is_delete else row, "source": source, "ts_ms": time_ms}
            event["op"] = "d" if is_delete else self._draw.choice("cru") if before is None else "u"
            records = [Sent(key, _text(event), time_ms)]
            # A tombstone has no order of its own, so a late one would delete a newer row.
            has_tombstone = is_delete and self._variant.in_order and self._draw.random() < 0.5
            return [*records, Sent(key, None, time_ms)] if has_tombstone else records
        if rules.envelope == "maxwell":
            kind = "delete" if is_delete else "insert" if before is None else "update"
            event = {"database": "d", "table": "t", "type": kind, "ts": time_ms // 1000, "xid": self._number}
            return [Sent(key, _text({**event, "data": before if is_delete else row}), time_ms)]
        if rules.op is None:
            return [Sent(key, None if is_delete else _text(row), time_ms)]
        return [Sent(key, _text({**row, "op": "d" if is_delete else "u", "seq": self._number}), time_ms)]


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
