"""The conversion between Iceberg's partition specs and sort orders, and layouts (table_layout.py). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyiceberg.partitioning import PartitionField as IcebergPartitionField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortOrder
from pyiceberg.table.sorting import SortField as IcebergSortField
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.transforms import Transform as IcebergTransform
from pyiceberg.types import DoubleType, FloatType, StructType

from barnabas.formats.field_aliases import Path
from barnabas.spark.partition_transforms import Kind, Transform
from barnabas.spark.table_layout import PartitionField, SortField, TableLayout
from barnabas.spark.table_schema import column_type_of

_KINDS: dict[type[IcebergTransform[Any, Any]], Kind] = {
    IdentityTransform: "identity",
    YearTransform: "year",
    MonthTransform: "month",
    DayTransform: "day",
    HourTransform: "hour",
    VoidTransform: "void",
}
_PLAIN: dict[Kind, Callable[[], IcebergTransform[Any, Any]]] = {kind: known for known, kind in _KINDS.items()}
_FIRST_FIELD_ID = 1000


def layout_of(schema: Schema, spec: PartitionSpec, order: SortOrder) -> TableLayout:
    """Return the layout of a table.

    :raises LookupError: Loads cannot write files of this spec: see `obstacle_of_spec`.
    """
    fields = []
    for part in spec.fields:
        path, transform = path_of(schema, part.source_id), transform_of(part.transform)
        if transform is None or (path is None and transform.kind != "void"):
            raise LookupError(part.name)
        fields.append(PartitionField(part.name, transform, path or ()))
    return TableLayout(tuple(fields), tuple(_sort_fields(schema, order)))


def _sort_fields(schema: Schema, order: SortOrder) -> Iterator[SortField]:
    """Yield the sort fields. Rows in an order that loads do not know stay in the order of records, which is valid."""
    known = []
    for field in order.fields:
        path, transform = path_of(schema, field.source_id), transform_of(field.transform)
        if path is None or transform is None or not _can_sort(schema, field.source_id, transform):
            return
        known.append(
            SortField(
                transform,
                path,
                is_descending=field.direction is SortDirection.DESC,
                nulls_first=field.null_order is NullOrder.NULLS_FIRST,
            )
        )
    yield from known


def _can_sort(schema: Schema, source_id: int, transform: Transform) -> bool:
    source = schema.find_field(source_id).field_type
    is_number = isinstance(source, FloatType | DoubleType) and transform.kind == "identity"
    return is_number or transform.accepts(column_type_of(source))


def obstacle_of_spec(schema: Schema, spec: PartitionSpec) -> str | None:
    """Return the reason why loads cannot write files of a partition spec, with the remedy; else None."""
    for part in spec.fields:
        transform, path = transform_of(part.transform), path_of(schema, part.source_id)
        if transform is not None and transform.kind == "void":
            continue
        column = schema.find_column_name(part.source_id)
        remedy = f"remove that partition field (table.update_spec().remove_field({part.name!r}))"
        if transform is None or path is None:
            return f"is partitioned by {part.transform}({column}), which loads do not know: {remedy}"
        source = schema.find_field(part.source_id)
        if not transform.accepts(column_type_of(source.field_type)):
            kind = source.field_type
            return f"is partitioned by {part.transform}({column}) of type {kind}, which loads cannot write: {remedy}"
        if source.initial_default is not None:
            return f"is partitioned by {part.transform}({column}), a column with a default value: {remedy}"
    return None


def transform_of(iceberg: IcebergTransform[Any, Any]) -> Transform | None:
    """Return the transform; None for a transform that loads do not know."""
    if isinstance(iceberg, BucketTransform):
        return Transform("bucket", iceberg.num_buckets)
    if isinstance(iceberg, TruncateTransform):
        return Transform("truncate", iceberg.width)
    kind = _KINDS.get(type(iceberg))
    return None if kind is None else Transform(kind)


def _iceberg_transform(transform: Transform) -> IcebergTransform[Any, Any]:
    if transform.width is None:
        return _PLAIN[transform.kind]()
    return (BucketTransform if transform.kind == "bucket" else TruncateTransform)(transform.width)


def path_of(schema: Schema, field_id: int) -> Path | None:
    """Return the path to a field, through structs; None for a dropped field, and for fields of lists and maps."""
    return _path_in(schema.as_struct(), field_id)


def _path_in(struct: StructType, field_id: int) -> Path | None:
    for field in struct.fields:
        if field.field_id == field_id:
            return (field.name,)
        inner = _path_in(field.field_type, field_id) if isinstance(field.field_type, StructType) else None
        if inner is not None:
            return (field.name, *inner)
    return None


def spec_of(layout: TableLayout, schema: Schema) -> PartitionSpec:
    """Return the partition spec of a new table."""
    return PartitionSpec(
        *(
            IcebergPartitionField(
                source_id=schema.find_field(".".join(field.path)).field_id,
                field_id=_FIRST_FIELD_ID + number,
                transform=_iceberg_transform(field.transform),
                name=field.name,
            )
            for number, field in enumerate(layout.partition)
        )
    )


def sort_order_of(layout: TableLayout, schema: Schema) -> SortOrder:
    """Return the sort order of a new table."""
    if not layout.sort:
        return UNSORTED_SORT_ORDER
    return SortOrder(
        *(
            IcebergSortField(
                source_id=schema.find_field(".".join(field.path)).field_id,
                transform=_iceberg_transform(field.transform),
                direction=SortDirection.DESC if field.is_descending else SortDirection.ASC,
                null_order=NullOrder.NULLS_FIRST if field.nulls_first else NullOrder.NULLS_LAST,
            )
            for field in layout.sort
        )
    )


def layout_of_table(metadata: TableMetadata) -> TableLayout:
    """Return the current layout of a table.

    :raises LookupError: Loads cannot write files of the table's spec.
    """
    return layout_of(metadata.schema(), metadata.spec(), sort_order_of_table(metadata))


def spec_text(schema: Schema, spec: PartitionSpec) -> str:
    """Return a partition spec in the syntax of `--partition-by`, also with transforms that loads do not know."""
    terms = []
    for part in spec.fields:
        transform = transform_of(part.transform)
        column = schema.find_column_name(part.source_id) or f"(dropped column {part.source_id})"
        if transform is None:
            terms.append(f"{part.transform}({column})")
        elif transform.kind != "void":
            terms.append(transform.of(column))
    return ", ".join(terms)


def sort_order_of_table(metadata: TableMetadata) -> SortOrder:
    """Return the default sort order of a table."""
    orders = {order.order_id: order for order in metadata.sort_orders}
    return orders.get(metadata.default_sort_order_id, UNSORTED_SORT_ORDER)


def partition_fields_of(metadata: TableMetadata) -> set[str]:
    """Return the names of the partition fields of all specs of a table. No new column may get such a name."""
    return {field.name for spec in metadata.partition_specs for field in spec.fields}
