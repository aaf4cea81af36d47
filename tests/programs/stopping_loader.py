"""Loads in a process of their own that stop at given places until they are told to go on, so that a test can look at
what is there, or kill them.

`python -m tests.programs.stopping_loader BOOTSTRAP WAREHOUSE FORMAT PLACES...`: a load into tables of that format for
each of `PLACES`, which are names of places with commas between them. Prints `stopped at PLACE` when it is there, and
goes on when it reads a line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from barnabas.spark import LoadProgress, load, local_session
from barnabas.spark.load_folder import LoadFolder
from tests.support.table_contents import TOPIC

AFTER_SOME_FILES = "after some files"
METADATA_WRITTEN = "metadata written"
AFTER_THE_COMMIT = "after the commit"
PLACES = (
    "planning",
    "before the first file",
    AFTER_SOME_FILES,
    "before the commit",
    METADATA_WRITTEN,
    AFTER_THE_COMMIT,
)


class Stops:
    """The places at which a load is yet to stop."""

    def __init__(self) -> None:
        self.left: set[str] = set()

    def at(self, place: str) -> None:
        """Say that it is there, if it is to stop there, and wait for a line."""
        if place in self.left:
            self.left.remove(place)
            sys.stdout.write(f"stopped at {place}\n")
            sys.stdout.flush()
            sys.stdin.readline()

    def on_progress(self, progress: LoadProgress) -> None:
        """Stop at the places that the progress tells of."""
        match progress.step:
            case "planning":
                self.at("planning")
            case "writing":
                self.at(AFTER_SOME_FILES if progress.records_done else "before the first file")
            case "committing":
                self.at("before the commit")

    def after(self, function: Callable[..., Any], place: str) -> Callable[..., Any]:
        """Return the function with a stop behind it."""

        def stopping(*args: Any, **kwargs: Any) -> None:
            function(*args, **kwargs)
            self.at(place)

        return stopping

    def before(self, function: Callable[..., Any], place: str) -> Callable[..., Any]:
        """Return the function with a stop in front of it."""

        def stopping(*args: Any, **kwargs: Any) -> None:
            self.at(place)
            function(*args, **kwargs)

        return stopping


def main() -> None:
    """Load, and stop on the way."""
    bootstrap, warehouse, table_format, *places_of_loads = sys.argv[1:]
    stops = Stops()
    SqlCatalog._write_metadata = staticmethod(stops.after(SqlCatalog._write_metadata, METADATA_WRITTEN))
    LoadFolder.release = stops.before(LoadFolder.release, AFTER_THE_COMMIT)
    spark = local_session("stopping loader", master="local[2]")
    for places in places_of_loads:
        stops.left = set(places.split(","))
        load(
            TOPIC,
            bootstrap=bootstrap,
            warehouse=Path(warehouse),
            table_format=table_format,
            on_progress=stops.on_progress,
            spark=spark,
        )
        assert not stops.left, f"it did not come to {stops.left}"


if __name__ == "__main__":
    main()
