"""Starts loads that are killed at given places (killed_loader.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def killed_loads(arguments: Mapping[str, object]) -> Iterator[Callable[[str], int]]:
    """Yield a function that loads and is killed at a place; it returns what the load ended with.

    :param arguments: of `load`.
    """
    command = [sys.executable, "-m", "tests.programs.killed_loader", json.dumps(arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def load_killed_at(place: str) -> int:
            stdin.write(f"{place}\n")
            stdin.flush()
            return int(stdout.readline())

        yield load_killed_at
