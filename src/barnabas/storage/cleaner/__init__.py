"""Log compaction: what is to be cleaned, the rewriting of segments, and the swap of files.

`docs/compaction.md` tells how the parts work together. A process of its own rewrites (`python -m
barnabas.storage.cleaner`), the broker says what, and swaps.
"""
