"""Deletes old versions from the log of a loaded Delta table, so that the log stays small.

Each load adds a file to the log, and every hundredth version a checkpoint, which has the state of the whole table.
Delta itself deletes old files of the log by age alone (`delta.logRetentionDuration`, 30 days if nothing else is set): a
table that is loaded every ten seconds has 259,200 by then. So a load also deletes those files that lie more than
`VERSIONS_KEPT` versions back and before a checkpoint. The versions from that checkpoint on stay readable. Data files
stay: the checkpoint names them.

Nothing is deleted where the table itself sets how long its log is kept, and in tables that Barnabas has not made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from deltalake import DeltaTable

from barnabas.spark.object_files import files_in, read_text, remove_file
from barnabas.spark.table_store import Location

VERSIONS_KEPT = 100
"""At least so many of the newest versions stay."""
VERSIONS_BETWEEN_LOOKS = 25
_SETTINGS_OF_OWNERS = ("delta.logRetentionDuration", "delta.enableExpiredLogCleanup")
_OF_A_VERSION = re.compile(r"(\d{20})\.(json|crc|checkpoint\.parquet)")
_CHECKPOINT = "checkpoint.parquet"


def is_cleanup_due(version: int) -> bool:
    """Whether the log should be looked at after a version was committed: that takes a listing."""
    return version >= VERSIONS_KEPT and version % VERSIONS_BETWEEN_LOOKS == 0


def delete_old_versions(
    table: DeltaTable, location: Location, open_at: Callable[[int], object], needed: str | None
) -> int:
    """Delete files of the log that no version needs that is kept. Returns how many.

    :param table: as it is now; `open_at` opens a version of it, and raises where that cannot be read.
    :param needed: what the oldest version that stays must have among its properties (a ledger, so that each version
        that is left says how far the table is loaded); None for nothing.
    :raises OSError, DeltaError: the log cannot be read, or a file not be deleted.
    """
    if any(name in table.metadata().configuration for name in _SETTINGS_OF_OWNERS):
        return 0
    log_uri = f"{location.uri}/_delta_log"
    found = [_OF_A_VERSION.fullmatch(name) for name in files_in(location.properties, log_uri)]
    files = sorted((int(match[1]), match[2], match[0]) for match in found if match)
    first = _first_kept(files, table.version() - VERSIONS_KEPT, location, log_uri, needed)
    old = [name for version, _kind, name in files if version < first]
    if not old:
        return 0
    open_at(first)
    for name in old:
        with suppress(FileNotFoundError):
            remove_file(location.properties, f"{log_uri}/{name}")
    return len(old)


def _first_kept(
    files: Sequence[tuple[int, str, str]], newest: int, location: Location, log_uri: str, needed: str | None
) -> int:
    """Return the newest version, not above `newest`, that has a checkpoint and what is needed; 0 where none has."""
    with_json = {version for version, kind, _name in files if kind == "json"}
    for version, kind, _name in reversed(files):
        if kind == _CHECKPOINT and version <= newest and version in with_json:
            text = "" if needed is None else read_text(location.properties, f"{log_uri}/{version:020}.json")
            if needed is None or needed in _properties_in(text):
                return version
    return 0


def _properties_in(text: str) -> Mapping[str, object]:
    """Return what a file of the log says of its commit."""
    for line in text.splitlines():
        properties = json.loads(line).get("commitInfo")
        if isinstance(properties, dict):
            return properties
    return {}
