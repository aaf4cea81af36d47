"""What log compaction does for each record: compiled where it was built, else its twin in Python, as the record codec.
`COMPACTION` says which ("compiled" or "pure").

A cleaner gives the dirty part of a log to an `OffsetMap`, then all of it up to there to `filter_batches`, and writes
what that returns. No file is opened here, and nothing is decided about segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.records import compaction_pure
from barnabas.records.codec import load_implementation

if TYPE_CHECKING:
    from barnabas.records import compaction_pure as compaction
else:
    compaction = load_implementation("compaction")

COMPACTION = compaction.CODEC
Added = compaction_pure.Added
Filtered = compaction_pure.Filtered
Filtering = compaction_pure.Filtering
OffsetMap = compaction.OffsetMap
filter_batches = compaction.filter_batches
records_without_key = compaction.records_without_key
