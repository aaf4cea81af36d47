"""Record batches: built by producers, checked and stamped by brokers, read by consumers.

A broker needs `header` only; producers `builder`; consumers `reader`. The loops over single records are in
`codec`, and nowhere else.
"""

from barnabas.records.builder import BatchBuilder
from barnabas.records.columns import Columns
from barnabas.records.compression import Compression, compress, decompress
from barnabas.records.header import (
    BATCH_HEADER_SIZE,
    BatchHeader,
    check_batch,
    iter_headers,
    read_header,
    set_log_append_time,
    stamp,
)
from barnabas.records.reader import read_columns, read_records
from barnabas.records.record import Record

__all__ = [
    "BATCH_HEADER_SIZE",
    "BatchBuilder",
    "BatchHeader",
    "Columns",
    "Compression",
    "Record",
    "check_batch",
    "compress",
    "decompress",
    "iter_headers",
    "read_columns",
    "read_header",
    "read_records",
    "set_log_append_time",
    "stamp",
]
