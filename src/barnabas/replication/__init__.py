"""The rules of replication as pure functions and state machines (docs/explanation/replication.md).

Callers pass in the known state and the time; the functions return decisions. No module of this package reads a clock,
a file, a socket or the metadata store: the broker reads these and executes the decisions.
"""
