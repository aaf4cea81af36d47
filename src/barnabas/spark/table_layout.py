"""The layout of a table's rows in files: the partition of each file, and the order of the rows in it. Pure.

Each data file has one value for each partition field. The partition values are in Iceberg's representation
(partition_transforms.py). By default, a file has the rows of one event day, the UTC day of the event time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import ConfigurationError
from barnabas.formats.column_types import ColumnType
from barnabas.formats.field_aliases import Path
from barnabas.spark.layout_syntax import Term
from barnabas.spark.partition_transforms import TIME_KINDS, PartitionValue, Transform

Partition = tuple[PartitionValue, ...]
"""The partition of a file: the value of each partition field."""
LABEL_LETTERS_MAX = 40
_NOT_IN_FILE_NAMES = re.compile("[^A-Za-z0-9_-]")
_FLOATS = frozenset({"float", "double"})


class PartitionLimitError(ConfigurationError):
    """Rows have more partitions than allowed."""


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A partition field of a table.

    :param path: The column, or the path to the field of a struct.
    """

    name: str
    transform: Transform
    path: Path

    def __str__(self) -> str:
        return self.transform.of(".".join(self.path))


@dataclass(frozen=True, slots=True)
class SortField:
    """A column of a table's sort order."""

    transform: Transform
    path: Path
    is_descending: bool = False
    nulls_first: bool = True

    def __str__(self) -> str:
        nulls = "" if self.nulls_first != self.is_descending else f" nulls {'first' if self.nulls_first else 'last'}"
        return f"{self.transform.of('.'.join(self.path))}{' desc' if self.is_descending else ''}{nulls}"


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The partition fields of a table, and the order of the rows within a file.

    >>> print(TableLayout.by_day("timestamp"))
    day(timestamp)
    """

    partition: tuple[PartitionField, ...] = ()
    sort: tuple[SortField, ...] = ()
    only_in_partition: tuple[str, ...] = ()
    """Columns whose values are in the table's metadata, not in the files."""

    @classmethod
    def by_day(cls, time_column: str, name: str = "event_day") -> TableLayout:
        """Return the default layout: by day of the event time, in the order of the records."""
        return cls((PartitionField(name, Transform("day"), (time_column,)),))

    def __str__(self) -> str:
        return ", ".join(str(field) for field in self.partition if field.transform.kind != "void") or "nothing"

    @property
    def sort_text(self) -> str:
        """The sort order in the syntax of `--sort-by`."""
        return ", ".join(map(str, self.sort))

    def label(self, partition: Partition) -> str:
        """Return a partition as text for the names of files. Texts are shortened, so it may not be unique."""
        texts = (field.transform.label(value) for field, value in zip(self.partition, partition, strict=True))
        return "-".join(_NOT_IN_FILE_NAMES.sub("_", text)[:LABEL_LETTERS_MAX] for text in texts)[:120] or "all"

    def renamed(self, columns: Mapping[Path, str]) -> TableLayout:
        """Return the layout after columns were renamed; the keys are the paths with the current names."""
        if not columns:
            return self
        return replace(
            self,
            partition=tuple(replace(field, path=_renamed(field.path, columns)) for field in self.partition),
            sort=tuple(replace(field, path=_renamed(field.path, columns)) for field in self.sort),
        )

    def is_by(self, terms: Sequence[Term], time_column: str) -> bool:
        """Return whether the table is partitioned in this way; the names of partition fields do not count."""
        own = [(field.transform, field.path) for field in self.partition if field.transform.kind != "void"]
        return own == [(term.transform, _named(term.path, time_column)) for term in terms]

    def is_sorted_by(self, terms: Sequence[Term], time_column: str) -> bool:
        """Return whether the table has this sort order."""
        return self.sort == tuple(map(_sort_field, _each_named(terms, time_column)))

    def rows_by_partition(
        self, rows: pa.Table, partitions_max: int | None = None
    ) -> Iterator[tuple[Partition, pa.Table]]:
        """Yield the rows of each partition, in the order of partitions, nulls last. Rows are in the sort order, and
        keep their order where they are equal in it.

        :param partitions_max: The maximum number of partitions; None for no limit.
        :raises PartitionLimitError: The rows have more partitions.
        """
        codes, partitions = _groups(self.partition, rows)
        if partitions_max is not None and len(partitions) > partitions_max:
            raise PartitionLimitError(
                f"{rows.num_rows:,} records have {len(partitions):,} partitions of {self}, more than "
                f"{partitions_max:,}: choose larger partitions with partition_by (--partition-by)"
            )
        if len(partitions) == 1:
            yield partitions[0], self.sorted(rows)
            return
        order = self._order(rows, codes)
        ordered = rows.take(order)
        starts = np.flatnonzero(np.diff(codes[order.to_numpy()], prepend=-1)).tolist()
        for partition, start, end in zip(partitions, starts, [*starts[1:], rows.num_rows], strict=True):
            yield partition, ordered.slice(start, end - start)

    def sorted(self, rows: pa.Table) -> pa.Table:
        """Return rows in the sort order; unchanged without one."""
        return rows.take(self._order(rows, None)) if self.sort else rows

    def _order(self, rows: pa.Table, codes: np.ndarray | None) -> pa.Array:
        keys: list[tuple[pa.Array, str]] = [] if codes is None else [(pa.array(codes), "ascending")]
        for field in self.sort:
            keys += _sort_keys(field, rows)
        if not keys:  # the sort columns have only nulls
            return pa.array(np.arange(rows.num_rows))
        names = [str(number) for number in range(len(keys))]
        table = pa.table([key for key, _ in keys], names=names)
        order = [(name, direction) for name, (_, direction) in zip(names, keys, strict=True)]
        return pc.sort_indices(table, sort_keys=order)  # stable


def layout_of_terms(
    partition: Sequence[Term] | None, sort: Sequence[Term], columns: Mapping[str, ColumnType], time_column: str
) -> TableLayout:
    """Return the layout of a new table.

    `event_time` is the time column in tables without a column of that name.

    :param partition: The partitions; None for the day of the event time.
    :param columns: The types of the table's columns.
    :raises ConfigurationError: A column is unknown, or a transform does not apply to its type.
    """
    fields: list[PartitionField] = []
    taken = {name.lower() for name in columns}
    by_day = [Term(Transform("day"), (time_column,))]
    for term in _each_named(by_day if partition is None else partition, time_column):
        _check("partition_by (--partition-by)", term, columns, is_sort=False)
        name = _field_name(term, time_column)
        while term.transform.kind != "identity" and name.lower() in taken:
            name += "_part"
        fields.append(PartitionField(name, term.transform, term.path))
        taken.add(name.lower())
    _check_times(fields)
    order = list(_each_named(sort, time_column))
    for term in order:
        _check("sort_by (--sort-by)", term, columns, is_sort=True)
    return TableLayout(tuple(fields), tuple(map(_sort_field, order)))


def _sort_field(term: Term) -> SortField:
    return SortField(term.transform, term.path, term.is_descending, term.nulls_first)


def _each_named(terms: Iterable[Term], time_column: str) -> Iterator[Term]:
    for term in terms:
        yield replace(term, path=_named(term.path, time_column))


def _named(path: Path, time_column: str) -> Path:
    return (time_column,) if path == ("event_time",) else path


def _check(option: str, term: Term, columns: Mapping[str, ColumnType], *, is_sort: bool) -> None:
    kind: ColumnType | None = dict(columns)
    for name in term.path:
        if not isinstance(kind, dict) or name not in kind:
            known = ", ".join(columns)
            raise ConfigurationError(f"{option}: no column {'.'.join(term.path)!r}; the table has {known}")
        kind = kind[name]
    is_number = is_sort and term.transform.kind == "identity" and kind in _FLOATS
    if not is_number and not term.transform.accepts(kind):
        what = kind if isinstance(kind, str) else "a nested type"
        raise ConfigurationError(f"{option}: {term} does not apply to a column of type {what}; choose another column")


def _check_times(fields: Sequence[PartitionField]) -> None:
    of_times: dict[Path, PartitionField] = {}
    for field in fields:
        if field.transform.kind in TIME_KINDS:
            other = of_times.setdefault(field.path, field)
            if other is not field:
                raise ConfigurationError(
                    f"partition_by (--partition-by): {other} and {field} divide the same time; use the finer one alone"
                )


def _field_name(term: Term, time_column: str) -> str:
    """Return the name of a partition field, as Iceberg's libraries name it; `event_...` for the event time."""
    if term.transform.kind == "identity":
        return ".".join(term.path)
    if term.path == (time_column,) and term.transform.kind in TIME_KINDS:
        return f"event_{term.transform.kind}"
    kind = "trunc" if term.transform.kind == "truncate" else term.transform.kind
    parts = (*term.path, kind, *([] if term.transform.width is None else [str(term.transform.width)]))
    return "_".join(parts)


def _renamed(path: Path, columns: Mapping[Path, str]) -> Path:
    return tuple(columns.get(path[: level + 1], name) for level, name in enumerate(path))


def _column(rows: pa.Table, path: Path) -> pa.Array:
    """Return a column, or the field of a struct. It is null if the rows lack it, because readers then read null."""
    if path[0] not in rows.schema.names:
        return pa.nulls(rows.num_rows)
    column = rows.column(path[0]).combine_chunks()
    for name in path[1:]:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return pa.nulls(rows.num_rows)
        column = pc.struct_field(column, [name])
    return column


def _groups(fields: Sequence[PartitionField], rows: pa.Table) -> tuple[np.ndarray, list[Partition]]:
    """Return the number of the partition of each row, and the partitions, in ascending order with nulls last."""
    codes = np.zeros(rows.num_rows, np.int64)
    partitions: list[Partition] = [()]
    for field in fields:
        key = field.transform.applied(_column(rows, field.path))
        if key.null_count == len(key):
            partitions = [(*partition, None) for partition in partitions]
            continue
        encoded = key.dictionary_encode(null_encoding="encode")
        order = pc.sort_indices(encoded.dictionary)
        values: list[PartitionValue] = encoded.dictionary.take(order).to_pylist()
        if len(values) == 1:
            partitions = [(*partition, values[0]) for partition in partitions]
            continue
        ranks = np.empty(len(values), np.int64)
        ranks[order.to_numpy()] = np.arange(len(values))
        found, codes = np.unique(codes * len(values) + ranks[encoded.indices.to_numpy()], return_inverse=True)
        partitions = [(*partitions[each // len(values)], values[each % len(values)]) for each in found.tolist()]
    return codes, partitions


def _sort_keys(field: SortField, rows: pa.Table) -> Iterator[tuple[pa.Array, str]]:
    """Yield the keys of a sort field, with their direction. NaN is above all numbers."""
    key = field.transform.applied(_column(rows, field.path))
    direction = "descending" if field.is_descending else "ascending"
    if key.null_count == len(key):
        return
    if key.null_count:
        yield key.is_null(), "descending" if field.nulls_first else "ascending"
    if pa.types.is_floating(key.type):
        is_nan = pc.is_nan(key).fill_null(False)
        if is_nan.true_count:
            yield is_nan, direction
    yield key, direction
