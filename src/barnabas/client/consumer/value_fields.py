"""The fields of Avro values beside the other columns of records that were polled."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

    from barnabas.serialization.avro import AvroDeserializer

FIELDS, ERRORS = "value_fields", "value_error"


def check_schema(value_schema: object) -> None:
    """Raise where values cannot be decoded with this, before any record is taken for it.

    :raises TypeError: it is no AvroDeserializer.
    """
    from barnabas.serialization.avro import AvroDeserializer  # noqa: PLC0415  not every program has schemas

    if not isinstance(value_schema, AvroDeserializer):
        raise TypeError(f"value_schema must be an AvroDeserializer, not {value_schema!r}")


def with_fields(batch: pyarrow.RecordBatch, value_schema: AvroDeserializer) -> pyarrow.RecordBatch:
    """Return records with two more columns: a struct of the values' fields, and why that is null for a bad record.

    :raises TimedOutError: no registry answers.
    """
    import pyarrow as pa  # noqa: PLC0415

    from barnabas.serialization.avro_columns import decode_avro  # noqa: PLC0415  not every program reads columns

    decoded = decode_avro(batch.column("value"), value_schema.registry, value_schema.schema)
    fields = decoded.batch
    # Where no record has a schema there are no columns, and a batch without columns has no rows.
    structs = fields.to_struct_array() if fields.num_columns else pa.nulls(batch.num_rows, pa.struct([]))
    return batch.append_column(FIELDS, structs).append_column(ERRORS, decoded.reasons)
