"""`python -m demo [LOG]`: the departures of 2013, or a text log; exits 0 only if the books balance."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

from rich.console import Console

from barnabas.errors import BarnabasError
from demo.departures import departures
from demo.pipeline import run_demo
from demo.screen import Screen
from demo.text_log import text_log

FOLDER = Path(".barnabas")


def main(arguments: list[str]) -> int:
    """Run the demo and return the exit code."""
    console = Console()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        feed = text_log(Path(arguments[0])) if arguments else departures()
        audit = run_demo(feed, FOLDER, Screen(console))
    except BarnabasError as error:
        Console(stderr=True).print(f"demo: {error}", style="red", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        Console(stderr=True).print("demo: stopped; nothing is left running. The next run takes up what is there.")
        return 130
    console.print(audit.line(), markup=False, highlight=False, soft_wrap=True)
    return 0 if audit.balances else 1


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
