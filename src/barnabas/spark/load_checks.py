"""The checks of a load between writing and commit: bad records, the event-time field, and partitions. Pure.

A load that fails a check commits nothing: the table, its ledger and the dead-letter table are unchanged, and the next
load reads the same records again. Copies that its tasks sent to a dead-letter topic stay there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from barnabas.errors import ConfigurationError
from barnabas.formats.column_names import column_names
from barnabas.formats.column_types import ColumnType, Fields, settled
from barnabas.formats.further_columns import is_further
from barnabas.formats.upsert_rules import CHANGE_ORDER, KEY_OF_RECORD, UpsertRules
from barnabas.spark.bad_records import BadRecordLimit, BadRecords
from barnabas.spark.errors import EventTimeFieldError, TooManyBadRecordsError, TooManyPartitionsError, WarehouseError
from barnabas.spark.layout_syntax import Term
from barnabas.spark.partition_transforms import Transform
from barnabas.spark.table_layout import SortField, TableLayout
from barnabas.spark.table_names import DELETED_KEYS
from barnabas.spark.table_schema import FIELDS_MAX
from barnabas.spark.table_shape import TableShape
from barnabas.spark.table_store import StoredTable

_FIELDS_SHOWN = 20


def check_bad_records(table: str, bad: BadRecords, records: int, limit: BadRecordLimit | None) -> None:
    """Check the number of bad records of a load against the limit.

    :raises TooManyBadRecordsError: The load has more bad records. The message has the reasons and an example.
    """
    if limit is None or not limit.is_exceeded(bad.count, records):
        return
    reasons = ", ".join(f"{reason} ({count:,})" for reason, count in bad.reasons.items())
    example = f"; for example {bad.examples[0]}" if bad.examples else ""
    raise TooManyBadRecordsError(
        f"table {table} is unchanged: {bad.count:,} of {records:,} records are bad, more than the limit {limit} "
        f"(max_bad_records, --max-bad-records): {reasons}{example}"
    )


def missing_event_field(shape: TableShape, readable: int, with_field: int) -> str | None:
    """Return the event-time field if no record of a load has a value in it; else None.

    :param readable: The number of records with a value that is not bad. If it is 0, the result is None.
    :param with_field: The number of records that have the field.
    """
    return shape.event_time.field if readable and not with_field else None


def check_event_field(table: str, shape: TableShape, missing: str | None, *, is_new: bool, is_strict: bool) -> None:
    """Check that some record has the event-time field. An existing table is checked only with `is_strict`.

    :param missing: The result of `missing_event_field`.
    :raises EventTimeFieldError: No record has the field.
    """
    if missing is None:
        return
    has_column = missing in (shape.fields or {}) or shape.event_time.path[0] in (shape.fields or {})
    is_only_null = has_column and len(shape.event_time.path) == 1
    if not is_strict and (not is_new or is_only_null):
        return
    names = [name for name in shape.fields or {} if not is_further(name)]
    there = ", ".join(names[:_FIELDS_SHOWN])
    hint = f"; the first fields of the records: {there}" if there else ""
    state = "is not created" if is_new else "is unchanged"
    raise EventTimeFieldError(
        f"table {table} {state}: no record has the event-time field {missing!r} (event_time, --event-time){hint}"
    )


def check_partitions(table: str, layout: TableLayout, count: int, limit: int | None) -> None:
    """Check the number of partitions that a load would write.

    :param limit: The maximum number; None for no limit.
    :raises TooManyPartitionsError: There are more partitions.
    """
    if limit is not None and count > limit:
        raise TooManyPartitionsError(
            f"table {table} is not created: the records have {count:,} partitions of {layout}, more than {limit:,}: "
            "choose larger partitions with partition_by (--partition-by)"
        )


def check_layout(
    table: str, shape: TableShape, partition_by: Sequence[Term] | None, sort_by: Sequence[Term] | None
) -> None:
    """Check that an existing table has the layout that the caller asks for.

    :param partition_by: The partitions; None for those of the table.
    :param sort_by: The sort order; None for that of the table.
    :raises ConfigurationError: The table has another layout.
    """
    layout, time_column = shape.table_layout, shape.time_column
    if partition_by is not None and not layout.is_by(partition_by, time_column):
        wanted = ", ".join(map(str, partition_by)) or "nothing"
        raise ConfigurationError(
            f"table {table} is partitioned by {layout}, not by {wanted}: omit partition_by (--partition-by), which is "
            "for new tables, or choose another table"
        )
    if sort_by is not None and not layout.is_sorted_by(sort_by, time_column):
        raise ConfigurationError(
            f"table {table} is sorted by {layout.sort_text or 'nothing'}, not in the order of sort_by (--sort-by), "
            "which is for new tables: omit it, or choose another table"
        )


def check_upsert(base: StoredTable, shape: TableShape, wanted: UpsertRules | None) -> None:
    """Check that a load has the rules of the table.

    :raises ConfigurationError: One of both is a state table and the other is not, or the rules differ.
    :raises WarehouseError: Another tool has partitioned the table.
    """
    if base.format == DELETED_KEYS:
        raise ConfigurationError(
            f"table {base.name} is the memory of deleted keys of a state table: load into another table"
        )
    if shape.upsert is None:
        if wanted is not None:
            raise ConfigurationError(
                f"table {base.name} has a row for each record: omit upsert (--upsert), or load into another table"
            )
        return
    rules = shape.upsert.describe()
    if wanted is None:
        raise ConfigurationError(f"table {base.name} is a state table: load with {rules}, or load into another table")
    if any(field.transform.kind != "void" for field in shape.table_layout.partition):
        raise WarehouseError(
            f"table {base.name} is a state table with partitions of another tool, which loads do not write: remove "
            "the partition fields, or load into another table"
        )
    if not shape.upsert.has_same_options(wanted):
        raise ConfigurationError(f"table {base.name} has other rules: load with {rules}, or load into another table")


def with_state_fields(shape: TableShape, found: Fields, given: Mapping[str, ColumnType] | None) -> TableShape:
    """Return the shape of a new state table, with its fields.

    :param found: The fields of the records, as `ChangeDecoder.infer` returns them.
    :param given: The types of fields that the caller gives; None for all fields of the records.
    :raises ConfigurationError: No record has a key column or the field of the order, or it has an unfit type.
    """
    rules = shape.upsert
    assert rules is not None, "the table is a state table"
    of_records = {name: found.pop(KEY_OF_RECORD + name) for name in rules.keys if KEY_OF_RECORD + name in found}
    order = found.pop(CHANGE_ORDER, None)
    fields = dict(given or {})
    if given is None:
        fields = {name: settled(kind) for name, kind in islice(found.items(), FIELDS_MAX)}
    lacking = tuple(name for name in rules.keys if found.get(name) is None)
    for name in rules.keys:
        kind = of_records.get(name) if name in lacking else found[name]
        if kind is None:
            raise ConfigurationError(
                f"upsert (--upsert): no record has the key column {name!r}, in its value or its key"
            )
        kind = given[name] if given is not None and name in given else settled(kind)
        if not isinstance(kind, str):
            raise ConfigurationError(
                f"upsert (--upsert): the key column {name!r} is a struct or a list: choose plain columns"
            )
        fields[name] = kind
    if rules.has_order_column:
        if order is None:
            raise ConfigurationError(
                f"order_by (--order-by): no record has the field {rules.order_by!r} with numbers, times or texts"
            )
        fields[CHANGE_ORDER] = settled(order)
    columns = column_names(fields)
    by_key = TableLayout((), tuple(SortField(Transform("identity"), (columns[name],)) for name in rules.keys))
    return replace(shape, fields=fields, columns=columns, upsert=replace(rules, keys_of_records=lacking), layout=by_key)
