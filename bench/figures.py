"""Shared code of programs that measure one broker: writes figures as data, and keeps the results so far on Ctrl-C."""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from bench import machine
from bench.arena import remove_leftovers
from bench.downloads import cache_folder

EXIT_INTERRUPTED = 130
DIGITS = 5
INTERRUPTING = (signal.SIGINT, signal.SIGTERM)
PATH_OPTIONS = ("--json", "--folder")


@dataclass(slots=True)
class Interruption:
    """Remembers whether a signal has interrupted the program. After a signal, the exit code is not 0."""

    exit_code: int = 0


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Let Ctrl-C and SIGTERM end the block cleanly, and continue after it.

    Only the first signal interrupts: a second signal must not interrupt the shutdown of brokers.
    """
    interruption = Interruption()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in INTERRUPTING:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in INTERRUPTING:
        signal.signal(number, interrupt)
    try:
        yield interruption
    except KeyboardInterrupt:
        sys.stderr.write("stopped; the results so far:\n")
        interruption.exit_code = EXIT_INTERRUPTED


def parser_of(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the common options, which `parent_of` and `show` use."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--folder", type=Path, help="parent of the brokers' folders [the cache folder]")
    return parser


def parent_of(asked: argparse.Namespace) -> Path:
    """Remove the directories of killed benchmark runs. Then return the parent of the brokers' directories."""
    parent: Path = asked.folder or cache_folder()
    remove_leftovers(parent)
    return parent


def refuse_unknown(parser: argparse.ArgumentParser, names: Iterable[str], known: Collection[str]) -> None:
    """If a name is unknown, exit with an error that lists the known names."""
    if unknown := [name for name in names if name not in known]:
        parser.error(f"unknown name: {', '.join(unknown)}; use {', '.join(known)}")


def show(asked: argparse.Namespace, module: str, lines: Iterable[str], figures: Iterable[Any]) -> None:
    """Print lines, and write the figures (dataclasses or dicts) if `--json` is given."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    if asked.json:
        save(asked.json, module, [each if isinstance(each, dict) else asdict(each) for each in figures])


def save(path: Path, module: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write figures and a description of the machine to a file, with one line per row."""
    head = {
        "command": " ".join(["python -m", module, *without_paths(sys.argv[1:])]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine.describe(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text_of(head, rows), encoding="utf-8")


def without_paths(arguments: Sequence[str]) -> list[str]:
    """Return arguments without options that name files or directories of this machine.

    >>> without_paths(["--rounds", "3", "--json", "figures.json", "--folder=/data", "roll-often"])
    ['--rounds', '3', 'roll-often']
    """
    kept, is_path = [], False
    for argument in arguments:
        if not is_path and argument.partition("=")[0] not in PATH_OPTIONS:
            kept.append(argument)
        is_path = argument in PATH_OPTIONS
    return kept


def text_of(head: dict[str, str], rows: Sequence[dict[str, Any]]) -> str:
    """Return the content of the file of figures.

    >>> print(text_of({"date": "2026-11-21"}, [{"ms": 1.23456789}]), end="")
    {"date": "2026-11-21", "rows": [
    {"ms": 1.2346}
    ]}
    """
    begin = json.dumps(head, ensure_ascii=False)[:-1]
    lines = ",\n".join(json.dumps(rounded(row), ensure_ascii=False) for row in rows)
    return f'{begin}, "rows": [\n{lines}\n]}}\n'


def rounded(value: Any) -> Any:
    """Return data with numbers rounded to `DIGITS` significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return value
