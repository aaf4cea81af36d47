"""Merges changes into the files of a state table: one row for each key, that of its last change.

The merge reads the key columns, and the order, of the files whose bounds include a changed key. It rewrites only the
files with rows that a change replaces or deletes: the other rows of these files, and the new rows with keys of the same
range, become new files, sorted by key. So the files keep separate ranges of keys, and their bounds stay useful.

The merge runs in the calling process. It keeps the keys and the order of all changes in memory, and the whole rows of
at most `ROWS_PER_PASS` changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from barnabas.spark.change_files import DELETED, MergeColumns
from barnabas.spark.change_fold import (
    KeyIndex,
    Numbers,
    candidates,
    keys_in_several_partitions,
    last_changes,
    ranks,
    take_last,
)
from barnabas.spark.data_files import DataFile, columns_with_bounds, columns_with_dictionaries, create_file
from barnabas.spark.table_store import StoredFile

ROWS_PER_PASS = 1_000_000
STATE_FILE_BYTES = 64 * 1024 * 1024
"""The size of the files of a state table: smaller than that of other tables, because a changed key rewrites a file."""
_TABLE, _REMEMBERED, _CHANGE = 0, 1, 2


class ChangeSource(Protocol):
    """Changes to merge. Each call returns the same rows in the same order."""

    @property
    def size_bytes(self) -> int: ...

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the columns of a schema."""


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """Changes in memory."""

    rows: pa.Table

    @property
    def size_bytes(self) -> int:
        return int(self.rows.nbytes)

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        yield from self.rows.select(schema.names).cast(schema).to_batches()


class MergeBase(Protocol):
    """The version of a table that changes are merged into."""

    def data_files(self, columns: Collection[str]) -> list[StoredFile]: ...

    def rows_of_file(self, file: StoredFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class MergeTarget:
    """The table that changes are merged into, and the folder for its new files.

    :param base: the version of the table; None to ignore its rows.
    :param columns: the columns of the table after the merge.
    :param remembered: the deletions that the table remembers; None for none.
    :param kept: the condition that rows of rewritten files must meet to be kept; None for all rows.
    """

    base: MergeBase | None
    columns: MergeColumns
    folder: str
    io_properties: Mapping[str, str]
    target_file_bytes: int = STATE_FILE_BYTES
    remembered: MergeBase | None = None
    kept: pc.Expression | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a merge: the files to add, and the files to remove.

    :param deletions: the changes that delete a key: key columns, position and order.
    :param upserts: the number of keys that get a new row.
    :param outdated: the number of keys whose changes in this load are older than the table's row or its deletion.
    :param in_several_partitions: the number of keys whose changes, or whose change and row, are in several partitions,
        if offsets order the changes.
    """

    files: tuple[DataFile, ...]
    replaced: tuple[StoredFile, ...]
    deletions: pa.Table
    upserts: int = 0
    outdated: int = 0
    keys: int = 0
    in_several_partitions: int = 0


@dataclass(slots=True)
class _FileHits:
    """The rows of a file that have changed keys."""

    file: StoredFile
    codes: Numbers
    """For each row of the file, the number of its key among the changes; -1 for others."""
    highest: pa.Scalar
    """The highest value of the first key column."""
    rows: pa.Table
    """The narrow columns of the rows with changed keys."""


@dataclass(slots=True)
class _Writer:
    """Writes rows sorted by key to files of about the target size."""

    target: MergeTarget
    files: list[DataFile] = field(default_factory=list)
    _parts: list[pa.Table] = field(default_factory=list)
    _bytes: float = 0

    def add(self, rows: pa.Table, size_bytes: float) -> None:
        """Add rows whose keys follow those of the earlier calls.

        :param size_bytes: the approximate size of the rows in a file.
        """
        if rows.num_rows:
            self._parts.append(rows)
            self._bytes += size_bytes
        if self._bytes >= self.target.target_file_bytes / 2:
            self.flush()

    def flush(self) -> None:
        """Write the collected rows."""
        if not self._parts:
            return
        rows = pa.concat_tables(self._parts)
        rows = rows.sort_by([(name, "ascending") for name in self.target.columns.keys])
        count = max(1, round(self._bytes / self.target.target_file_bytes))
        step = -(-rows.num_rows // count)
        for start in range(0, rows.num_rows, step):
            self._write(rows.slice(start, step))
        self._parts, self._bytes = [], 0

    def _write(self, rows: pa.Table) -> None:
        path = f"{self.target.folder}/state-{len(self.files):05}.parquet"
        with create_file(self.target.io_properties, path) as file:
            pq.write_table(
                rows,
                file,
                compression="zstd",
                use_dictionary=columns_with_dictionaries(rows),
                write_statistics=columns_with_bounds(rows),
            )
            size_bytes = file.tell()
        self.files.append(DataFile(path, rows.num_rows, (), size_bytes))


class StateMerge:
    """One merge of changes into a state table."""

    def __init__(self, target: MergeTarget, changes: ChangeSource) -> None:
        self._target = target
        self._changes = changes
        self._schema = target.columns.schema
        self._keys = target.columns.keys
        self._narrow, self._order = target.columns.narrow, target.columns.order

    def run(self) -> Merged:
        """Write the new files. The caller commits them."""
        marked = self._narrow.append(pa.field(DELETED, pa.bool_()))
        changes = pa.Table.from_batches(self._changes.batches(marked), marked)
        if not changes.num_rows:
            return Merged((), (), changes.drop_columns([DELETED]))
        index = KeyIndex(self._columns(changes))
        kept = candidates(index.codes, changes, self._order_of(changes))
        own = changes.take(pa.array(kept))
        hits = list(self._hits(index, own))
        before = [*(hit.rows for hit in hits), self._remembered(index, own)]
        rows = pa.concat_tables([*before, own.drop_columns([DELETED])])
        # The changes come last: a change that equals the remembered deletion is the same change, loaded again.
        codes = np.concatenate([*(index.find(self._columns(each)) for each in before), index.codes[kept]])
        last = last_changes(codes, rows, self._order_of(rows))
        first = rows.num_rows - own.num_rows
        applied = last.rows >= first
        numbers = np.where(applied, kept[np.maximum(last.rows - first, 0)], 0)
        deletes = np.asarray(changes.column(DELETED).take(pa.array(numbers)).to_numpy(), bool)
        winners = take_last(rows, last, self._order)
        touched = [hit for hit in hits if applied[hit.codes[hit.codes >= 0]].any()]
        fresh = np.flatnonzero(applied & ~deletes)
        files = self._write(changes.num_rows, numbers, winners, fresh, applied, touched)
        return Merged(
            tuple(files),
            tuple(hit.file for hit in touched),
            winners.filter(pa.array(applied & deletes)),
            upserts=len(fresh),
            outdated=int(index.count - applied.sum()),
            keys=index.count,
            in_several_partitions=keys_in_several_partitions(codes, rows) if self._order is None else 0,
        )

    def _columns(self, rows: pa.Table) -> list[pa.ChunkedArray]:
        return [rows.column(name) for name in self._keys]

    def _order_of(self, rows: pa.Table) -> pa.ChunkedArray | None:
        return None if self._order is None else rows.column(self._order)

    def _hits(self, index: KeyIndex, changes: pa.Table) -> Iterator[_FileHits]:
        """Yield the files of the table that have rows with changed keys."""
        for file, rows, codes in self._found(self._target.base, index, changes):
            if (codes >= 0).any():
                highest = pc.max(rows.column(self._keys[0]))
                yield _FileHits(file, codes, highest, rows.filter(pa.array(codes >= 0)))

    def _remembered(self, index: KeyIndex, changes: pa.Table) -> pa.Table:
        """Return the remembered deletions of changed keys."""
        found = self._found(self._target.remembered, index, changes)
        return pa.concat_tables(
            [self._narrow.empty_table(), *(rows.filter(pa.array(codes >= 0)) for _, rows, codes in found)]
        )

    def _found(
        self, base: MergeBase | None, index: KeyIndex, changes: pa.Table
    ) -> Iterator[tuple[StoredFile, pa.Table, Numbers]]:
        """Yield the files that may have changed keys, their narrow columns, and the number of each row's key."""
        if base is None:
            return
        for file in base.data_files(self._keys):
            if self._may_have(file, changes):
                rows = pa.Table.from_batches(base.rows_of_file(file, self._narrow), self._narrow)
                yield file, rows, index.find(self._columns(rows))

    def _may_have(self, file: StoredFile, changes: pa.Table) -> bool:
        """Return whether a key lies within the bounds of a file."""
        inside: Any = None
        for name in self._keys:
            column = changes.column(name)
            try:
                low, high = (pa.scalar(each, column.type) for each in file.bounds[name])
            except (KeyError, TypeError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
                continue
            own = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
            if pa.types.is_floating(column.type):  # bounds leave NaN out
                own = pc.or_(own, pc.is_nan(column))
            inside = own if inside is None else pc.and_(inside, own)
        return inside is None or bool(pc.any(inside).as_py())

    def _write(
        self,
        count: int,
        last_rows: Numbers,
        winners: pa.Table,
        fresh: Numbers,
        applied: np.ndarray,
        touched: list[_FileHits],
    ) -> list[DataFile]:
        """Write the files with the new rows, and with the other rows of the files that are rewritten.

        :param count: the number of changes.
        :param last_rows: for each key, the number of its last change.
        :param fresh: the keys with a new row.
        """
        writer = _Writer(self._target)
        fresh, slots = self._slots(winners, fresh, touched)
        row_bytes = self._changes.size_bytes / count
        begun = -1
        for begin, end, first, stop in _passes(slots, max(1, len(touched))):
            slot_of_row = np.full(count, -1, np.int64)
            slot_of_row[last_rows[fresh[first:stop]]] = slots[first:stop]
            rows, found = self._changed_rows(slot_of_row)
            for slot in range(begin, end):
                own = rows.filter(pa.array(found == slot))
                size_bytes = own.num_rows * row_bytes
                if begun < slot < len(touched):
                    begun = slot
                    hit = touched[slot]
                    kept = self._kept(hit, applied)
                    size_bytes += hit.file.size_bytes * kept.num_rows / max(1, hit.file.records)
                    own = pa.concat_tables([kept, own])
                writer.add(own, size_bytes)
        writer.flush()
        return writer.files

    def _slots(self, winners: pa.Table, fresh: Numbers, touched: list[_FileHits]) -> tuple[Numbers, Numbers]:
        """Sort the new rows by key, and return for each one the number of the rewritten file in whose range it lies.

        This sorts the files by their highest key. Rows after the last file belong to the last one.
        """
        column = winners.column(self._keys[0])
        highest = pa.array([hit.highest.as_py() for hit in touched], column.type)
        ranked = ranks(pa.chunked_array([*column.chunks, highest], column.type))
        own, ends = ranked[: len(column)][fresh], ranked[len(column) :]
        by_key = np.argsort(own, kind="stable")
        if not touched:
            return fresh[by_key], np.zeros(len(fresh), np.int64)
        by_end = np.argsort(ends, kind="stable")
        touched[:] = [touched[number] for number in by_end]
        return fresh[by_key], np.minimum(np.searchsorted(ends[by_end], own[by_key]), len(touched) - 1)

    def _changed_rows(self, slot_of_row: Numbers) -> tuple[pa.Table, Numbers]:
        """Return the rows of chosen changes, and the slot of each.

        :param slot_of_row: for each change, the slot of its row; -1 for changes that are not chosen.
        """
        if (slot_of_row < 0).all():
            return self._schema.empty_table(), np.empty(0, np.int64)
        parts: list[pa.RecordBatch] = []
        slots: list[Numbers] = []
        start = 0
        for batch in self._changes.batches(self._schema):
            own = slot_of_row[start : start + len(batch)]
            start += len(batch)
            is_chosen = own >= 0
            if is_chosen.any():
                parts.append(batch.filter(pa.array(is_chosen)))
                slots.append(own[is_chosen])
        return pa.Table.from_batches(parts, self._schema), np.concatenate([np.empty(0, np.int64), *slots])

    def _kept(self, hit: _FileHits, applied: np.ndarray) -> pa.Table:
        """Return the rows of a file that no change replaces or deletes."""
        is_kept = np.where(hit.codes >= 0, ~applied[hit.codes], True)
        parts, start = [], 0
        assert self._target.base is not None, "the file belongs to the table"
        for batch in self._target.base.rows_of_file(hit.file, self._schema):
            parts.append(batch.filter(pa.array(is_kept[start : start + len(batch)])))
            start += len(batch)
        rows = pa.Table.from_batches(parts, self._schema)
        return rows if self._target.kept is None else rows.filter(self._target.kept)


def _passes(slots: Numbers, count: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the slots and the rows of each pass: the first and the end slot, the first and the end row.

    A slot with more rows than a pass may have is in several passes.

    :param slots: the slot of each row, in ascending order.
    :param count: the number of slots.
    """
    begin = 0
    for first in range(0, max(1, len(slots)), ROWS_PER_PASS):
        stop = min(first + ROWS_PER_PASS, len(slots))
        last = count - 1 if stop == len(slots) else int(slots[stop - 1])
        yield begin, last + 1, first, stop
        begin = last if stop == len(slots) or slots[stop] == last else last + 1
