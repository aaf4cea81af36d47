"""The ids that schedulers give their runs, and the memory of a table for them. Pure.

The commit of a load with a run id has the property `barnabas.run-id`. A later load with this id finds the commit, and
reports its result instead of loading. Snapshots expire, so the table also remembers the last runs itself:

- An Iceberg table has the property `barnabas.runs`, with the sequence number, the snapshot and the number of records of
  the last `RUNS_KEPT_MAX` runs.
- A Delta table has application transactions for a run in one of `SLOTS` slots. A later run of the same slot replaces
  them, so the table never has more.

A forgotten run is harmless: a load continues at the ledger, and a backfill refuses offsets that have rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.errors import ConfigurationError

RUN_ID = "barnabas.run-id"
RUN_FILES = "barnabas.run-files"
"""The number of files of a run; only in commits with a run id."""
RUNS = "barnabas.runs"
RUNS_KEPT_MAX = 200
RUN_ID_LENGTH_MAX = 250
SLOTS = 256


@dataclass(frozen=True, slots=True)
class CommittedRun:
    """The commit of a run.

    :param properties: the properties of the commit; those of an expired commit have only the number of records.
    """

    snapshot_id: int
    properties: Mapping[str, Any]


def check_run_id(run_id: str) -> str:
    """Return a valid run id.

    :raises ConfigurationError: the id is empty, too long, or has characters that a person cannot read.
    """
    if not 1 <= len(run_id) <= RUN_ID_LENGTH_MAX or not run_id.isprintable():
        raise ConfigurationError(
            f"run_id (--run-id): {run_id[:50]!r} is not an id; use 1 to {RUN_ID_LENGTH_MAX} printable characters"
        )
    return run_id


def with_run(kept: str | None, run_id: str, sequence: int, snapshot_id: int, records: int) -> str:
    """Return the value of `barnabas.runs` after a run. Only the last runs are kept.

    :param kept: the value before; None without one.
    """
    runs = _parsed(kept)
    runs.pop(run_id, None)
    last = dict(list(runs.items())[-RUNS_KEPT_MAX + 1 :])
    last[run_id] = [sequence, snapshot_id, records]
    return json.dumps(last, separators=(",", ":"), ensure_ascii=False)


def remembered_run(
    kept: str | None, run_id: str, oldest_sequence: int | None, records_name: str
) -> CommittedRun | None:
    """Return a run of `barnabas.runs` whose snapshot has expired; None for an unknown run.

    :param oldest_sequence: the sequence number of the oldest remaining snapshot. A run after it has been rolled back.
    :param records_name: the property for the number of records.

    >>> kept = with_run(None, "a", 5, 77, 3)
    >>> remembered_run(kept, "a", 6, "records"), remembered_run(kept, "a", 5, "records")
    (CommittedRun(snapshot_id=77, properties={'records': '3'}), None)
    """
    sequence, snapshot_id, records = _parsed(kept).get(run_id, (0, 0, 0))
    if not sequence or oldest_sequence is None or sequence >= oldest_sequence:
        return None
    return CommittedRun(snapshot_id, {records_name: str(records)})


def _parsed(kept: str | None) -> dict[str, list[int]]:
    runs: dict[str, list[int]] = json.loads(kept or "{}")
    return runs


def slot_of(run_id: str) -> tuple[str, int]:
    """Return the application id of a run's slot, and a number that identifies the run."""
    digest = hashlib.blake2b(run_id.encode(), digest_size=9).digest()
    return f"barnabas/runs:{digest[0] % SLOTS}", int.from_bytes(digest[1:]) >> 1
