"""Log compaction: planning, rewriting of segments, and the swap of files.

`docs/explanation/compaction.md` describes how the parts work together. A separate process (`python -m
barnabas.storage.cleaner`) rewrites segments. The broker sends jobs to this process and swaps the files.
"""
