"""The deletion of old versions from the log of a loaded Delta table, which keeps the log small.

Each load adds a file to the log. Each hundredth version adds a checkpoint with the state of the whole table. Delta
deletes log files only by age (`delta.logRetentionDuration`, 30 days by default): with a load every ten seconds, the log
has 259,200 files by then. So a load also deletes log files that are more than `VERSIONS_KEPT` versions old and precede
a checkpoint. The versions from that checkpoint on remain readable. Data files are not deleted: the checkpoint
references them.

Nothing is deleted if a table property sets the retention of the log, or if Barnabas has not created the table.
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
"""The smallest number of newest versions to keep."""
VERSIONS_BETWEEN_LOOKS = 25
_SETTINGS_OF_OWNERS = ("delta.logRetentionDuration", "delta.enableExpiredLogCleanup")
_OF_A_VERSION = re.compile(r"(\d{20})\.(json|crc|checkpoint\.parquet)")
_CHECKPOINT = "checkpoint.parquet"


def is_cleanup_due(version: int) -> bool:
    """Return whether to clean up after a version. Only some versions do, because a cleanup lists the log directory."""
    return version >= VERSIONS_KEPT and version % VERSIONS_BETWEEN_LOOKS == 0


def delete_old_versions(
    table: DeltaTable, location: Location, open_at: Callable[[int], object], needed: str | None
) -> int:
    """Delete the files of the log that no kept version needs. Return the number of files.

    :param table: The current version of the table.
    :param open_at: Opens a version of the table, and raises an error if that version cannot be read.
    :param needed: A property that the oldest kept version must have, such as the ledger: then each kept version has
        one. None for no condition.
    :raises OSError, DeltaError: The log cannot be read, or a file cannot be deleted.
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
    """Return the newest version up to `newest` that has a checkpoint and the property `needed`; 0 if none has."""
    with_json = {version for version, kind, _name in files if kind == "json"}
    for version, kind, _name in reversed(files):
        if kind == _CHECKPOINT and version <= newest and version in with_json:
            text = "" if needed is None else read_text(location.properties, f"{log_uri}/{version:020}.json")
            if needed is None or needed in _properties_in(text):
                return version
    return 0


def _properties_in(text: str) -> Mapping[str, object]:
    """Return the commit properties in a file of the log."""
    for line in text.splitlines():
        properties = json.loads(line).get("commitInfo")
        if isinstance(properties, dict):
            return properties
    return {}
