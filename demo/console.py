"""Leaves the brokers of the demo running with a console, until Ctrl-C."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from barnabas.cli.ends_with_parent import ending_with_this_process
from barnabas.errors import BarnabasError
from demo.screen import Screen

STOP_TIMEOUT_S = 20.0


def leave_running(bootstrap: str, folder: Path, port: int, screen: Screen) -> None:
    """Start a console with the tables of the demo, print its address, and wait for Ctrl-C.

    :raises BarnabasError: the console does not start, or has ended.
    """
    command = [sys.executable, "-m", "barnabas.cli.main", "console", "-b", bootstrap]
    command += ["--port", str(port), "--warehouse", str(folder / "warehouse")]
    log = folder / "console.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            ending_with_this_process(command), stdout=subprocess.PIPE, stderr=errors, start_new_session=True, text=True
        )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        if not ready.startswith("ready "):
            raise BarnabasError(f"the console did not start; see {log}")
        address = ready.split()[1]
        screen.note(f"brokers at {bootstrap}; the console shows the proof: {address}completeness (Ctrl-C ends all)")
        process.wait()
        raise BarnabasError(f"the console has ended; see {log}")
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
