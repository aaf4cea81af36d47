"""The loops that run once per record, in Python.

The compiled equivalent is `codec_compiled`, with the same names and results.

A change of one module must also change the other; the tests of `records` compare both. `codec` selects the module in
use.
"""

from barnabas.records.codec_pure.appending import Appender, Delivery, OpenEncoders, group_rows, murmur2
from barnabas.records.codec_pure.column_decoding import ColumnDecoder, check_column_room, with_valid_names
from barnabas.records.codec_pure.decoding import Record, check_ranges, decode_records
from barnabas.records.codec_pure.encoding import RecordEncoder, exact_bytes
from barnabas.records.codec_pure.limits import (
    BAD_COLUMN,
    BAD_TIMESTAMP,
    BATCH_TOO_LARGE,
    OFFSET_MAX,
    RECORD_OVERHEAD_MAX,
)
from barnabas.records.codec_pure.stretches import Stretches, record_stretches
from barnabas.records.codec_pure.varints import encode_headers

CODEC = "pure"

__all__ = [
    "BAD_COLUMN",
    "BAD_TIMESTAMP",
    "BATCH_TOO_LARGE",
    "CODEC",
    "OFFSET_MAX",
    "RECORD_OVERHEAD_MAX",
    "Appender",
    "ColumnDecoder",
    "Delivery",
    "OpenEncoders",
    "Record",
    "RecordEncoder",
    "Stretches",
    "check_column_room",
    "check_ranges",
    "decode_records",
    "encode_headers",
    "exact_bytes",
    "group_rows",
    "murmur2",
    "record_stretches",
    "with_valid_names",
]
