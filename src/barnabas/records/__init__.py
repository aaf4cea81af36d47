"""Record batches. Producers build batches, brokers check and stamp them, and consumers read them.

A broker uses only `header`, a producer `builder`, and a consumer `reader`, or `arrow` for columns. All loops over
single records are in `codec`. It is the compiled module if that was built, otherwise a Python module.
"""

from barnabas.records.builder import BatchBuilder
from barnabas.records.codec import CODEC, Appender, Delivery, OpenEncoders, Record, exact_bytes, group_rows, murmur2
from barnabas.records.codec_pure.appending import OnDelivery
from barnabas.records.columns import BinaryBuffers
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
from barnabas.records.reader import iter_bodies, read_records

__all__ = [
    "BATCH_HEADER_SIZE",
    "CODEC",
    "Appender",
    "BatchBuilder",
    "BatchHeader",
    "BinaryBuffers",
    "Compression",
    "Delivery",
    "OnDelivery",
    "OpenEncoders",
    "Record",
    "check_batch",
    "compress",
    "decompress",
    "exact_bytes",
    "group_rows",
    "iter_bodies",
    "iter_headers",
    "murmur2",
    "read_header",
    "read_records",
    "set_log_append_time",
    "stamp",
]
