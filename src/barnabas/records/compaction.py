"""The loops of log compaction over single records: the compiled module if it was built, otherwise the Python module.

`COMPACTION` is "compiled" or "pure". The cleaner adds the keys of the dirty part of a log to an `OffsetMap`. Then it
passes all batches of the log up to the same offset to `filter_batches`, and writes the result. This module opens no
files and does not choose segments.
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
