"""Records the conversation, or shows how it differs: `python -m tests.conversation [--record] [SCENE ...]`.

Without `--record` it prints what differs from the recordings, and exits with 1 if anything does. With `--record` it
prints the same, and then writes the answers of the code at hand, with the commit that is checked out. The answers of
commit X are recorded in a checkout of X that has the `tests/conversation` of today.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
from pathlib import Path

import barnabas
from tests.conversation.script import SCENES, perform
from tests.conversation.transcript import compare, load, recording, save


def commit_of(package: Path) -> str:
    """Return the commit of the checkout that a package is in, with a + if its files differ from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(package), *arguments], check=True, capture_output=True, text=True
        ).stdout.strip()

    return git("rev-parse", "--short=10", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.conversation")
    parser.add_argument("--record", action="store_true", help="write the answers of the code at hand")
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"one of {', '.join(SCENES)}; default: all")
    arguments = parser.parse_args()
    logging.disable()
    unknown = [name for name in arguments.scenes if name not in SCENES]
    if unknown:
        parser.error(f"no scene {', '.join(unknown)}")
    commit = commit_of(Path(barnabas.__file__).parent)
    different = 0
    for name in arguments.scenes or SCENES:
        path, lines = recording(name), perform(name)
        difference = "not recorded yet"
        if path.exists():
            recorded_on, recorded = load(path)
            difference = compare(recorded, lines)
            if difference:
                print(f"scene {name}, recorded on {recorded_on}:\n{difference}\n")  # noqa: T201
        if difference and arguments.record:
            save(path, lines, commit)
            print(f"recorded {path.name} on {commit}")  # noqa: T201
        different += bool(difference)
    return 1 if different and not arguments.record else 0


if __name__ == "__main__":
    sys.exit(main())
