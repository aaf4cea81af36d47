"""`python -m barnabas.laboratory.history FILE`: check a history and print the findings."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from barnabas.laboratory.history.checker import check
from barnabas.laboratory.history.report import text
from barnabas.laboratory.history.timeline import picture

FOUND, UNUSABLE = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the history file that the arguments name. Return the exit code: 0 if there is no anomaly and all partitions
    were read to the end, otherwise 1 or 2."""
    parser = argparse.ArgumentParser(
        prog="python -m barnabas.laboratory.history",
        description="Find lost, duplicate and reordered records in a history of client operations.",
    )
    parser.add_argument("history", type=Path, help="file of the history")
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="write a drawing of the examples to this file")
    given = parser.parse_args(arguments)
    try:
        report = check(given.history)
    except (FileNotFoundError, ValueError) as error:
        sys.stderr.write(f"history: {error}\n")
        return UNUSABLE
    sys.stdout.write(text(report) + "\n")
    if given.picture:
        given.picture.write_text(picture(report), encoding="utf-8")
    return 0 if report.ok else FOUND


if __name__ == "__main__":
    sys.exit(main())
