"""The moment that an audit over months is of: up to where it reads what was told, and which state of the table it sees.

Producers, mirrors, loads and groups go on while the one is read after the other. So that nothing of it looks like a
loss, or like a second copy:

- **The table is looked at before and after the end of `_audit` is asked for**, until no load was committed between the
  two. A load tells its account before it commits, and that it has committed after it, or the next load says so. So what
  is read of `_audit` has the accounts of all loads that are in the table, and no later one counts.
- **The end of the log is asked for after that.** All that producers have told is in the log then. What the log has
  behind the table's last load is open, and so many records may be missing in the table; only what is missing beyond
  that is lost. It is the same for a mirror, with the end of the source's log.

What is there and was not told of yet is open in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from barnabas.client.admin.admin import Admin
from barnabas.client.audit.event_sender import AUDIT_TOPIC
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.spark.table_audit import TableAudit

Behind = Mapping[int, int]
"""By partition, how many records a tier may not have reached yet."""


@dataclass(frozen=True, slots=True)
class AuditCutoff:
    """The table, up to where what was told is read, by partition of `_audit`, and what the table may lack."""

    side: TableAudit
    told_to: Mapping[int, int]
    behind: Behind


@dataclass(frozen=True, slots=True)
class SourceCutoff:
    """Of the topic in the cluster that it is mirrored from: its id in hex, up to where what was told is read, and where
    its partitions ended afterwards."""

    topic_id: str
    told_to: Mapping[int, int]
    ends: Mapping[int, int]


def find_cutoff(bootstrap: str, topic: str, current_table: Callable[[], TableAudit]) -> AuditCutoff:
    """Return a moment.

    :param look: looks at the table as it is now.
    :raises ApiError: nobody has ever told anything.
    """
    with Admin(bootstrap) as admin:
        side, told_to = table_and_ends(current_table, lambda: _ends(admin, AUDIT_TOPIC))
        return AuditCutoff(side, told_to, _behind(admin, topic, side))


def table_and_ends(
    current_table: Callable[[], TableAudit], ends: Callable[[], Mapping[int, int]]
) -> tuple[TableAudit, Mapping[int, int]]:
    """Return a table, and ends that were asked for while it was like that. A load takes longer than a look."""
    side = current_table()
    while True:
        found, before, side = ends(), side, current_table()
        if (before.state, before.next_offsets) == (side.state, side.next_offsets):
            return side, found


def find_source_cutoff(bootstrap: str, topic: str) -> SourceCutoff:
    """Return it of a source; to be asked for after what was told in the target.

    :raises ApiError: there is no such topic, or nobody has told anything.
    """
    with Admin(bootstrap) as admin:
        topic_id = admin.describe_topics([topic])[0].id
        told_to = _ends(admin, AUDIT_TOPIC)
        return SourceCutoff(topic_id, told_to, _ends(admin, topic))


def _ends(admin: Admin, topic: str) -> dict[int, int]:
    return {where.partition: end for where, end in admin.end_offsets(_partitions(admin, topic)).items()}


def _partitions(admin: Admin, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, each.partition) for each in admin.describe_topics([topic])[0].partitions]


def _behind(admin: Admin, topic: str, side: TableAudit) -> dict[int, int]:
    """Return how many offsets the log has behind what is loaded: none where the topic is gone, or is another one."""
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
    # What retention has taken before it was loaded is lost.
    loaded = {each: max(side.next_offsets.get(each.partition, 0), begins[each]) for each in partitions}
    return {each.partition: max(0, ends[each] - loaded[each]) for each in partitions}
