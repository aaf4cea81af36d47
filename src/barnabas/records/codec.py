"""The record codec in use: the compiled one where it was built, else its twin in Python.

`CODEC` says which ("compiled" or "pure"). The environment variable BARNABAS_CODEC asks for one of the two; that is
for tests and for comparisons, since both give the same results.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from barnabas.errors import ConfigurationError

WANTED_CODEC = os.environ.get("BARNABAS_CODEC", "")
"""What was asked for; empty: the compiled one if there is one."""
if WANTED_CODEC not in ("", "compiled", "pure"):
    raise ConfigurationError(f"BARNABAS_CODEC={WANTED_CODEC!r} must be 'compiled', 'pure' or empty")

if TYPE_CHECKING or WANTED_CODEC == "pure":
    from barnabas.records import codec_pure as codec
else:
    try:
        from barnabas.records import codec_compiled as codec
    except ImportError as error:
        if WANTED_CODEC:
            raise ConfigurationError(f"BARNABAS_CODEC={WANTED_CODEC}, but it was not built here: {error}") from error
        from barnabas.records import codec_pure as codec

CODEC = codec.CODEC
Appender = codec.Appender
ColumnDecoder = codec.ColumnDecoder
Delivery = codec.Delivery
Lanes = codec.Lanes
Record = codec.Record
RecordEncoder = codec.RecordEncoder
decode_records = codec.decode_records
exact_bytes = codec.exact_bytes
group_rows = codec.group_rows
murmur2 = codec.murmur2
