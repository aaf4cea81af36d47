"""Shared code of the programs that run other clients' published tests: the broker and the cache folder."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

CACHE_FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"


@contextlib.contextmanager
def broker(data: Path, settings: Mapping[str, str], count: int = 1) -> Iterator[str]:
    """Run one broker on a free port, or several with ZooKeeper. Yield the address.

    :param settings: the settings of each broker, with underscores instead of dots.
    :param count: the number of brokers.
    """
    several = [] if count == 1 else ["cluster"]
    command = [sys.executable, "-m", "barnabas.cli.main", *several, "up", "--data", str(data)]
    command += [] if "listeners" in settings else ["--port", "0"]
    command += ["--brokers", str(count)] if several else []
    environment = os.environ | {f"BARNABAS_{name.upper()}": value for name, value in settings.items()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout
            ready, _, address = process.stdout.readline().strip().partition(" ")
            if ready != "ready":
                raise SystemExit("the broker did not start; its error is printed above")
            yield address
        finally:
            process.terminate()
