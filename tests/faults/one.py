"""`python -m tests.faults.one SCENARIO SEED FOLDER`: one run; how it ended is in FOLDER/result.json.

It ends, with all that it has started, on SIGTERM and SIGINT, and when whoever has started it closes its standard input.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType

from tests.faults.scenarios import by_name
from tests.faults.stage import run

INTERRUPTED = 130


def main() -> int:
    """Play one scenario; return 0 if all is well, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.one")
    parser.add_argument("scenario")
    parser.add_argument("seed", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--short", action="store_true")
    given = parser.parse_args()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, _interrupt)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        result = run(by_name(given.scenario), given.seed, given.folder, is_short=given.short)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        _end_children()
    (given.folder / "result.json").write_text(json.dumps(dataclasses.asdict(result), indent=1), encoding="utf-8")
    return bool(result.problems)


def _interrupt(_signal: int, frame: FrameType | None) -> None:
    traceback.print_stack(frame)  # a run that is told to end because it does not tells what it waited for
    # Once: the end of the brokers is not to be interrupted again.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _end_children() -> None:
    """Kill what still runs: an interruption may come between the start of a process and its being known."""
    for tasks in Path("/proc/self/task").glob("*/children"):
        for pid in tasks.read_text().split():
            os.kill(int(pid), signal.SIGKILL)


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # At once: threads of clients that wait for brokers that are gone hold nobody up.
    os._exit(code)
