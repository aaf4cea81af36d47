"""A load in a process of its own that stops for ever at a given place, so that a test can kill it there.

`python -m tests.pipeline.stopping_loader BOOTSTRAP WAREHOUSE PLACE`; prints `stopped` when it is there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from barnabas.spark import LoadProgress, load
from barnabas.spark.leftovers import LoadFolder
from tests.pipeline.table_contents import TOPIC

PLACES = (
    "planning",
    "before the first file",
    "after some files",
    "before the commit",
    "metadata written",
    "after the commit",
)


def stop() -> None:
    """Say so, and never return."""
    sys.stdout.write("stopped\n")
    sys.stdout.flush()
    Event().wait()


def stop_when(place: str, progress: LoadProgress) -> None:
    """Stop at the places that the progress tells of."""
    places = {
        "planning": progress.step == "planning",
        "before the first file": progress.step == "writing" and progress.records_done == 0,
        "after some files": progress.step == "writing" and progress.records_done > 0,
        "before the commit": progress.step == "committing",
    }
    if places.get(place):
        stop()


def stop_after(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with a stop behind it."""

    def stopping(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)
        stop()

    return stopping


def main() -> None:
    """Load, and stop on the way."""
    bootstrap, warehouse, place = sys.argv[1:]
    if place == "metadata written":
        SqlCatalog._write_metadata = staticmethod(stop_after(SqlCatalog._write_metadata))
    if place == "after the commit":
        LoadFolder.release = stop_after(lambda folder: None)
    load(TOPIC, bootstrap=bootstrap, warehouse=Path(warehouse), on_progress=lambda progress: stop_when(place, progress))


if __name__ == "__main__":
    main()
