"""Loads that kill their own process, with -9, where they have come to a place: in front of a function, or behind it.

`python -m tests.programs.killed_loader ARGUMENTS`: the arguments of `load` in JSON. Each line that it reads is a place,
and for each of them a child of this process loads, so that nothing is imported again. It says what the child ended
with, as `Popen` has it. The records are few, so there is no Spark; where tasks are to have only so many of them
(`records_per_task_max`), these run here, one after the other.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from barnabas.spark import load, table_formats, table_load
from barnabas.spark.data_files import PartitionedFiles
from barnabas.spark.dead_letter_files import DeadLetterFiles
from barnabas.spark.dead_letter_table import DeadLetterTable
from barnabas.spark.jobs import run_here
from barnabas.spark.load_folder import LoadFolder
from barnabas.spark.table_load import TableLoader
from barnabas.spark.table_place import ICEBERG, TablePlace
from tests.support.table_contents import TOPIC

Place = tuple[Any, str, str, int]
"""A class or a module, a function of it, "before" or "after", and the how manieth call."""

PLACES: dict[str, Place] = {
    "planned": (TableLoader, "_plan", "after", 1),
    "one folder claimed": (DeadLetterTable, "claim", "before", 1),
    "both folders claimed": (DeadLetterTable, "claim", "after", 1),
    "files of rows written": (PartitionedFiles, "finish", "after", 1),
    "files of bad records written": (DeadLetterFiles, "finish", "after", 1),
    "before the dead letters' commit": (DeadLetterTable, "commit", "before", 1),
    "dead letters committed and their folder locked": (LoadFolder, "release", "before", 1),
    "dead letters committed": (DeadLetterTable, "commit", "after", 1),
    "before the commit": (TableLoader, "_commit", "before", 1),
    "committed and the folder locked": (LoadFolder, "release", "before", 2),
    "committed": (LoadFolder, "release", "after", 2),
}
GATHERING_PLACES: dict[str, Place] = {
    "small files put together": (table_load, "merge_files", "after", 1),
    "small files removed": (TableLoader, "_gathered", "after", 1),
    "small files of bad records put together": (table_load, "merge_files", "after", 2),
}
"""Where there are many tasks."""
DEAD_LETTERS_METADATA, METADATA = "dead letters' metadata written", "metadata written"
ICEBERG_PLACES = (DEAD_LETTERS_METADATA, METADATA)
"""Where the metadata of a table is there, and the catalog does not know of it yet. Delta has one file."""


def places(table_format: str) -> list[str]:
    """Return the places of a load into tables of that format."""
    return [*PLACES, *(ICEBERG_PLACES if table_format == ICEBERG else ())]


def killed_at(method: Callable[..., Any], when: str, number: int) -> Callable[..., Any]:
    """Return a method that kills the process in front of its `number`th call, or behind that."""
    calls = 0

    @wraps(method)
    def killing(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = method(*arguments, **options)
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return killing


def load_and_be_killed(arguments: dict[str, Any], place: str) -> None:
    """Load; where it comes to an end, the place was never come to."""
    if place in ICEBERG_PLACES:
        number = 1 + ICEBERG_PLACES.index(place)
        SqlCatalog._write_metadata = staticmethod(killed_at(SqlCatalog._write_metadata, "after", number))
    else:
        owner, name, when, number = {**PLACES, **GATHERING_PLACES}[place]
        setattr(owner, name, killed_at(getattr(owner, name), when, number))
    load(TOPIC, **arguments)


def run_tasks_here(replace: Callable[[object, str, object], object] = setattr) -> None:
    """Let tasks run one after the other in this process, as many as they may be."""

    def run(_spark: object, items: Any, work: Any, **options: Any) -> Any:
        return run_here(items, work, **options)

    replace(table_load, "run_tasks", run)
    replace(table_load, "parallelism", lambda _spark: 2)
    replace(table_load, "is_local", lambda _spark: False)


def main() -> None:
    """Have a child load for each line."""
    arguments = json.loads(sys.argv[1])
    table_formats.format_of(TablePlace.of("", table_format=arguments["table_format"]))  # imports what it needs
    if "records_per_task_max" in arguments:
        run_tasks_here()
        arguments["spark"] = lambda: None
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                load_and_be_killed(arguments, line.rstrip("\n"))
            except BaseException:  # noqa: BLE001  # a child must not go on with the loop
                traceback.print_exc()
            os._exit(0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
