"""The cutoff of an audit over months: the offsets of `_audit` up to which it reads, and the version of the table.

Producers, mirrors, loads and groups keep running during the audit. Two rules prevent false losses and duplicates:

- **The audit reads the table's version before and after the end of `_audit`**, until both versions are the same. A load
  reports its counts before it commits, and the commit itself afterwards (or the next load does). So `_audit` has the
  counts of all loads in the table up to that end, and later loads do not count.
- **The audit reads the end of the topic's log after that.** All records that producers have reported are in the log
  then. Records after the table's last load are open: the table may lack them. Only other missing records are lost. The
  same holds for a mirror, with the end of the source's log.

Records that nobody has reported yet are open, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from barnabas.client.admin.admin import Admin
from barnabas.client.audit.event_sender import AUDIT_TOPIC
from barnabas.client.config import Bootstrap
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.spark.table_audit import TableAudit

Behind = Mapping[int, int]
"""The number of records that a tier may not have yet, by partition."""


@dataclass(frozen=True, slots=True)
class AuditCutoff:
    """The table, the end offsets of `_audit` by partition, and the records that the table may lack."""

    side: TableAudit
    audit_ends: Mapping[int, int]
    behind: Behind


@dataclass(frozen=True, slots=True)
class SourceCutoff:
    """In the source of a mirror: the id of the topic in hex, the end offsets of `_audit`, and those of the topic, which
    were read afterwards."""

    topic_id: str
    audit_ends: Mapping[int, int]
    ends: Mapping[int, int]


def find_cutoff(bootstrap: Bootstrap, topic: str, current_table: Callable[[], TableAudit]) -> AuditCutoff:
    """Return the cutoff in the cluster that the table was loaded from.

    :param current_table: returns the current version of the table.
    :raises ApiError: The topic `_audit` does not exist.
    """
    with Admin(bootstrap) as admin:
        side, audit_ends = table_and_ends(current_table, lambda: _ends(admin, AUDIT_TOPIC))
        return AuditCutoff(side, audit_ends, _behind(admin, topic, side))


def table_and_ends(
    current_table: Callable[[], TableAudit], ends: Callable[[], Mapping[int, int]]
) -> tuple[TableAudit, Mapping[int, int]]:
    """Return the table, and end offsets that were read while the table did not change."""
    side = current_table()
    while True:
        found, before, side = ends(), side, current_table()
        if (before.state, before.next_offsets) == (side.state, side.next_offsets):
            return side, found


def find_source_cutoff(bootstrap: Bootstrap, topic: str) -> SourceCutoff:
    """Return the cutoff in the source of a mirror. Read `_audit` of the target before.

    :raises ApiError: The topic, or the topic `_audit`, does not exist.
    """
    with Admin(bootstrap) as admin:
        topic_id = admin.describe_topics([topic])[0].id
        audit_ends = _ends(admin, AUDIT_TOPIC)
        return SourceCutoff(topic_id, audit_ends, _ends(admin, topic))


def _ends(admin: Admin, topic: str) -> dict[int, int]:
    return {where.partition: end for where, end in admin.end_offsets(_partitions(admin, topic)).items()}


def _partitions(admin: Admin, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, each.partition) for each in admin.describe_topics([topic])[0].partitions]


def _behind(admin: Admin, topic: str, side: TableAudit) -> dict[int, int]:
    """Return the number of offsets after the last load, by partition. The result is empty if the topic was deleted or
    created again.
    """
    try:
        found = admin.describe_topics([topic])[0]
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return {}
    if found.id and side.topic_id and found.id != side.topic_id:
        return {}
    partitions = _partitions(admin, topic)
    ends, begins = admin.end_offsets(partitions), admin.beginning_offsets(partitions)
    # Records that retention deleted before they were loaded are lost.
    loaded = {each: max(side.next_offsets.get(each.partition, 0), begins[each]) for each in partitions}
    return {each.partition: max(0, ends[each] - loaded[each]) for each in partitions}
