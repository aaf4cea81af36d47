"""The rules of replication, pure: what is known and the time go in, what to do comes out
(docs/explanation/replication.md).

No module here reads a clock, a file, a socket or the tree; the broker is the shell that does, and that acts.
"""
