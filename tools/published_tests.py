"""What the scripts that run other clients' published tests share: a broker, and a place for what they download."""

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
    """Run a broker on a free port, or several and ZooKeeper, and yield the address.

    :param settings: of each broker, as in its file of settings, with underscores for dots.
    :param count: of brokers.
    """
    several = [] if count == 1 else ["cluster"]
    command = [sys.executable, "-m", "barnabas.cli.main", *several, "up", "--port", "0", "--data", str(data)]
    command += ["--brokers", str(count)] if several else []
    environment = os.environ | {f"BARNABAS_{name.upper()}": value for name, value in settings.items()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout
            ready, _, address = process.stdout.readline().strip().partition(" ")
            if ready != "ready":
                raise SystemExit("the broker did not start; it says why above")
            yield address
        finally:
            process.terminate()
