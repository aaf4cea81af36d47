"""The rules of replication as pure functions and state machines (docs/explanation/replication.md).

Callers pass the known state and the time, and the functions return decisions. No module of this package uses a clock,
files, sockets or the metadata store. The broker does so, and executes the decisions.
"""
