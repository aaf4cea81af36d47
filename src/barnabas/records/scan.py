"""The scan over batch headers: the compiled module if it was built, otherwise the Python module.

`SCAN` is "compiled" or "pure". Recovery, searches by timestamp and index rebuilds scan the headers of many batches. The
caller of a scan reads the bytes; this module opens no files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.records import scan_pure
from barnabas.records.codec import load_implementation

if TYPE_CHECKING:
    from barnabas.records import scan_pure as scan
else:
    scan = load_implementation("scan")

SCAN = scan.CODEC
ANY_GAPS = scan_pure.OFFSET_MAX
"""The value of `SegmentScan`'s parameter `gaps_up_to` that accepts gaps at all offsets."""
BATCHES_KEPT = scan_pure.BATCHES_KEPT
PRODUCERS_ATTRIBUTES = scan_pure.PRODUCERS_ATTRIBUTES
RELATIVE_OFFSET_MAX = scan_pure.RELATIVE_OFFSET_MAX
max_record_count = scan_pure.max_record_count
SegmentScan = scan.SegmentScan
StampedBatch = scan_pure.StampedBatch
count_records = scan.count_records
plain_replicas = scan.plain_replicas
stamp_plain_batches = scan.stamp_plain_batches
usual_header = scan.usual_header
