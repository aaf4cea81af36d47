"""The expiry of snapshots of a loaded Iceberg table, which keeps the table's metadata small.

Each commit writes a metadata file that lists all snapshots. A table with a load every ten seconds gets 8,640 snapshots
and metadata files per day, and each file is longer than the last. Four table properties limit this. A load sets missing
ones in a table that Barnabas created, and keeps other values:

    write.metadata.delete-after-commit.enabled,     pyiceberg deletes metadata files that the table's metadata log
    write.metadata.previous-versions-max            no longer lists
    commit.manifest-merge.enabled                   a commit merges ten small manifests into one (iceberg_files.py)
    barnabas.snapshots-max                          the number of snapshots to keep; 0 keeps all of them

Only snapshots that Barnabas has committed are expired by number. These stay: the newest ones, those of branches and
tags, and the last one with a ledger. For time travel, the last one of each hour stays for two days, and the last one of
each day for thirty days. Expiry never removes rows: all data files of the current snapshot stay.

After the expiry, files without a reference are deleted: the manifest lists of the expired snapshots, and the manifests
that only these lists contain.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise

from pyiceberg.io import FileIO
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotsUpdate
from pyiceberg.utils.concurrent import ExecutorFactory

from barnabas.spark.client_properties import check_location_provider
from barnabas.spark.ledger import LEDGER, LOAD_ID

log = logging.getLogger(__name__)

SNAPSHOTS_MAX = "barnabas.snapshots-max"
BOUNDS: Mapping[str, str] = {
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "10",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    SNAPSHOTS_MAX: "50",
}
"""The properties that limit the metadata of tables, with the values that loads set."""
HOURLY_AGE, DAILY_AGE = timedelta(days=2), timedelta(days=30)
EXPIRED_AT_ONCE = 50
"""The maximum number of snapshots that one commit expires. Tables of older releases may have thousands of them."""
_NUMBERED = re.compile(r"(.+)-m(\d{1,3})\.avro")
_MS = timedelta(milliseconds=1)
_HOUR_MS, _DAY_MS = timedelta(hours=1) // _MS, timedelta(days=1) // _MS


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the properties of a snapshot."""
    return snapshot.summary.additional_properties if snapshot.summary else {}


def missing_bounds_properties(table: Table, *, is_own: bool) -> dict[str, str]:
    """Return the properties to set in a table.

    :param is_own: True if Barnabas created the table, or if all of its commits are from Barnabas.
    """
    snapshots = table.metadata.snapshots
    if not is_own and not (snapshots and all(LOAD_ID in summary_of(each) for each in snapshots)):
        return {}
    return {name: value for name, value in BOUNDS.items() if name not in table.properties}


def surplus_snapshots(metadata: TableMetadata) -> list[Snapshot]:
    """Return the snapshots of Barnabas that exceed the number to keep, oldest first."""
    kept_max = _kept_max(metadata.properties)
    in_order = _in_order(metadata)
    if kept_max is None or len(in_order) <= kept_max:
        return []
    kept = {ref.snapshot_id for ref in metadata.refs.values()} | _with_last_ledger(metadata)
    older = in_order[:-kept_max]
    replaced_at_ms, now_ms = replacement_times_ms(metadata), in_order[-1].timestamp_ms
    last_of = {
        _period(each.timestamp_ms, now_ms - replaced_at_ms[each.snapshot_id]): each.snapshot_id for each in older
    }
    kept |= {snapshot_id for period, snapshot_id in last_of.items() if period is not None}
    return [each for each in older if each.snapshot_id not in kept and LOAD_ID in summary_of(each)]


def _in_order(metadata: TableMetadata) -> list[Snapshot]:
    return sorted(metadata.snapshots, key=lambda each: (each.sequence_number or 0, each.timestamp_ms))


def replacement_times_ms(metadata: TableMetadata) -> dict[int, int]:
    """Return for each snapshot id when the next snapshot was committed; the last snapshot is not in the result.

    A reader may use a snapshot up to that time, so its age begins there. A table without loads for weeks has an old
    snapshot that readers used until now.
    """
    in_order = _in_order(metadata)
    return {one.snapshot_id: two.timestamp_ms for one, two in pairwise(in_order)}


def _kept_max(properties: Mapping[str, str]) -> int | None:
    """Return the number of newest snapshots to keep; None keeps all."""
    asked = properties.get(SNAPSHOTS_MAX, "")
    if not asked.isdecimal() or int(asked) == 0:
        return None
    least = properties.get(TableProperties.MIN_SNAPSHOTS_TO_KEEP, "")
    return max(int(asked), int(least) if least.isdecimal() else 1)


def _with_last_ledger(metadata: TableMetadata) -> set[int]:
    current = metadata.current_snapshot()
    if current is None:
        return set()
    loads = (each.snapshot_id for each in ancestors_of(current, metadata) if LEDGER in summary_of(each))
    return {each for each in (next(loads, None),) if each is not None}


def _period(timestamp_ms: int, age_ms: int) -> tuple[int, int] | None:
    """Return the hour or day that a snapshot represents for time travel; None if the snapshot is too old."""
    if age_ms <= HOURLY_AGE // _MS:
        return (_HOUR_MS, timestamp_ms // _HOUR_MS)
    return (_DAY_MS, timestamp_ms // _DAY_MS) if age_ms <= DAILY_AGE // _MS else None


def expire_surplus_snapshots(table: Table) -> int:
    """Expire the snapshots that exceed the number to keep, and delete their files. Return the number of expired
    snapshots.

    An expiry is a commit of its own, so it waits until the surplus is half of the number to keep.

    :param table: The table after the last commit.
    """
    beyond = surplus_snapshots(table.metadata)
    if 2 * len(beyond) < (_kept_max(table.properties) or 0):
        return 0
    gone = beyond[:EXPIRED_AT_ONCE]
    expire_snapshots(table, [each.snapshot_id for each in gone])
    left = {each.snapshot_id for each in table.metadata.snapshots}
    _delete_unnamed(table, [each for each in gone if each.snapshot_id not in left])
    return len(gone)


def expire_snapshots(table: Table, snapshot_ids: Sequence[int]) -> None:
    """Remove snapshots from a table's metadata, in one commit. No branch or tag may reference them.

    pyiceberg's `ExpireSnapshots.by_id` copies the whole metadata twice for each snapshot.

    :raises CommitFailedException: Another writer has committed to the table.
    """
    current = table.metadata.current_snapshot_id
    table._do_commit(
        (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(snapshot_ids)}),),
        (AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": current}),),
    )


def _delete_unnamed(table: Table, gone: Sequence[Snapshot]) -> None:
    """Delete the manifest lists of expired snapshots, and the manifests that no other snapshot references."""
    run = ExecutorFactory.get_or_create().map
    named = set[str]().union(*run(lambda each: _manifests_of(each, table.io), table.metadata.snapshots))
    unnamed = set[str]().union(*run(lambda each: _manifests_if_there(each, table.io), gone))
    unnamed |= {merged for manifest in unnamed for merged in _merged_at_once(manifest)}
    unnamed -= named
    unnamed |= {each.manifest_list for each in gone} - {each.manifest_list for each in table.metadata.snapshots}
    check_location_provider(table.properties, ".".join(table.name()))
    own = table.location_provider().new_metadata_location("")
    list(run(lambda path: _delete(path, table.io), (path for path in unnamed if path.startswith(own))))


def _delete(path: str, io: FileIO) -> None:
    with suppress(FileNotFoundError):
        io.delete(path)


def _merged_at_once(manifest: str) -> list[str]:
    """Return the manifests that the same commit wrote before this one, and may have merged into it.

    >>> _merged_at_once("metadata/5f1c-m2.avro")
    ['metadata/5f1c-m0.avro', 'metadata/5f1c-m1.avro']
    """
    match = _NUMBERED.fullmatch(manifest)
    return [] if match is None else [f"{match[1]}-m{number}.avro" for number in range(int(match[2]))]


def _manifests_of(snapshot: Snapshot, io: FileIO) -> set[str]:
    """Return the paths of a snapshot's manifests.

    :raises OSError: The manifest list cannot be read.
    """
    return {each.manifest_path for each in snapshot.manifests(io)}


def _manifests_if_there(snapshot: Snapshot, io: FileIO) -> set[str]:
    """Return the paths of a snapshot's manifests; none if the manifest list is missing."""
    try:
        return _manifests_of(snapshot, io)
    except FileNotFoundError:
        return set()
