"""The record codec in use: the compiled one where it was built, else its twin in Python (`barnabas.records.twins`).

`CODEC` says which ("compiled" or "pure").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.records.twins import chosen

if TYPE_CHECKING:
    import barnabas.records.codec_pure as codec
    from barnabas.records.codec_pure import Record
else:
    codec = chosen("codec")
    Record = codec.Record

__all__ = [
    "CODEC",
    "Appender",
    "ColumnDecoder",
    "Delivery",
    "OpenEncoders",
    "Record",
    "RecordEncoder",
    "decode_records",
    "exact_bytes",
    "group_rows",
    "murmur2",
    "twin",
]

twin = codec
CODEC = codec.CODEC
Appender = codec.Appender
ColumnDecoder = codec.ColumnDecoder
Delivery = codec.Delivery
OpenEncoders = codec.OpenEncoders
RecordEncoder = codec.RecordEncoder
decode_records = codec.decode_records
exact_bytes = codec.exact_bytes
group_rows = codec.group_rows
murmur2 = codec.murmur2
