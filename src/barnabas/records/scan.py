"""The scan over batch headers in use, chosen as the record codec is: compiled where it was built, else its twin in
Python. `SCAN` says which ("compiled" or "pure"); BARNABAS_CODEC asks for one of the two.

Recovery, searches by offset and by time, and the making of indexes go over the headers of many batches; all of them do
it with this. What it cannot do without bytes it asks its caller for: no file is opened here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import ConfigurationError
from barnabas.records import scan_pure
from barnabas.records.codec import WANTED_CODEC
from barnabas.records.compression import Compression, expanded_bytes_max

if TYPE_CHECKING or WANTED_CODEC == "pure":
    from barnabas.records import scan_pure as scan
else:
    try:
        from barnabas.records import scan_compiled as scan
    except ImportError as error:
        if WANTED_CODEC:
            raise ConfigurationError(f"BARNABAS_CODEC={WANTED_CODEC}, but it was not built here: {error}") from error
        from barnabas.records import scan_pure as scan

SCAN = scan.CODEC
RELATIVE_OFFSET_MAX = scan_pure.RELATIVE_OFFSET_MAX
SegmentScan = scan.SegmentScan
count_records = scan.count_records
find_batch = scan.find_batch
last_end_within = scan.last_end_within


def max_record_count(body_size: int, compression: Compression) -> int:
    """Return a number of records that a body of `body_size` bytes, as it is stored, cannot hold more of.

    >>> max_record_count(70, Compression.NONE), max_record_count(0, Compression.ZSTD)
    (10, 0)
    """
    return expanded_bytes_max(compression, body_size) // scan_pure.RECORD_SIZE_MIN
