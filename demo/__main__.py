"""`python -m demo [LOG]`: the departures of 2013, or a text log; exits 0 only if the books balance."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

from rich.console import Console

FOLDER = Path(".barnabas")


def main(arguments: list[str]) -> int:
    """Run the demo and return the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    errors = Console(stderr=True)
    try:
        return _run(arguments, Console(), errors)
    except KeyboardInterrupt:
        errors.print("demo: stopped; nothing is left running. The next run takes up what is there.")
        return 130


def _run(arguments: list[str], console: Console, errors: Console) -> int:
    # Imported here, because it takes a second in which Ctrl-C must not show a traceback.
    from barnabas.errors import BarnabasError  # noqa: PLC0415
    from demo.departures import departures  # noqa: PLC0415
    from demo.pipeline import run_demo  # noqa: PLC0415
    from demo.screen import Screen  # noqa: PLC0415
    from demo.text_log import text_log  # noqa: PLC0415

    try:
        feed = text_log(Path(arguments[0])) if arguments else departures()
        audit = run_demo(feed, FOLDER, Screen(console))
    except BarnabasError as error:
        errors.print(f"demo: {error}", style="red", markup=False, soft_wrap=True)
        return 1
    console.print(audit.line(), markup=False, highlight=False, soft_wrap=True)
    return 0 if audit.balances else 1


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
