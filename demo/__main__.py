"""`python -m demo [--brokers N] [--fault lose|double|late] [--console PORT] [LOG]`: run the demo.

The events are the departures of 2013, or the lines of a text log.

The exit code is 0 only if the audit finds no difference. The data stays in `.barnabas`. Runs with several brokers use a
subdirectory of `.barnabas`, because their topics and tables differ.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from barnabas.cli.signals import end_at_once_on_interrupt, interrupt_as_usual, interrupt_on

if TYPE_CHECKING:
    from demo.audit import Audit
    from demo.fault import Fault

FOLDER = Path(".barnabas")
CONSOLE_PORT = 8082


def main(arguments: list[str]) -> int:
    """Run the demo. Return the exit code."""
    interrupt_as_usual()
    interrupt_on(signal.SIGTERM)
    errors = Console(stderr=True)
    parser = argparse.ArgumentParser("demo")
    parser.add_argument("--brokers", type=int, choices=range(1, 10), default=1, metavar="N", help="1 to 9")
    parser.add_argument("--fault", choices=("lose", "double", "late"), help="lose, duplicate or delay one record")
    parser.add_argument(
        "--console",
        type=int,
        metavar="PORT",
        help="leave the brokers and a console running at this port; 1: 8082; 0: any",
    )
    parser.add_argument("log", type=Path, nargs="?", metavar="LOG", help="a text log")
    options = parser.parse_args(arguments)
    try:
        return _run(options, Console(), errors)
    except KeyboardInterrupt:
        errors.print("demo: stopped; no process is left running. The next run continues with the stored data.")
        return 130
    finally:
        end_at_once_on_interrupt()


def _run(options: argparse.Namespace, console: Console, errors: Console) -> int:
    # This import takes a second. Ctrl-C during the import must not print a traceback.
    from barnabas.errors import BarnabasError  # noqa: PLC0415
    from demo.departures import departures  # noqa: PLC0415
    from demo.pipeline import run_demo  # noqa: PLC0415
    from demo.screen import Screen  # noqa: PLC0415
    from demo.text_log import text_log  # noqa: PLC0415

    log: Path | None = options.log
    brokers: int = options.brokers
    fault: Fault | None = options.fault
    console_port: int | None = CONSOLE_PORT if options.console == 1 else options.console

    def finish(audit: Audit) -> None:
        console.print(audit.line(), markup=False, highlight=False, soft_wrap=True)

    try:
        feed = departures() if log is None else text_log(log)
        folder = FOLDER if brokers == 1 else FOLDER / f"{brokers}-brokers"
        audit = run_demo(feed, folder, Screen(console), finish, brokers, fault, console_port)
    except BarnabasError as error:
        errors.print(f"demo: {error}", style="red", markup=False, soft_wrap=True)
        return 1
    return 0 if audit.balances else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
