"""The prompt of `barnabas sql`: statements end with a semicolon and may have several lines.

Ctrl-C interrupts a running statement or discards the current input; Ctrl-D exits. The history is stored in the user's
state directory.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.error_messages import explain
from barnabas.cli.table_output import show_table
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BarnabasError

try:
    import readline
except ImportError:  # Windows: the prompt has no history and no completion
    readline = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from barnabas.cli.sql_output import MakeWriter
    from barnabas.sql.engine import Engine
    from barnabas.sql.topics import Topics

HISTORY_LINES = 1_000
WELCOME = "Topics are tables. .tables lists them, .schema TOPIC shows the columns of a topic, .help shows more."
HELP = """\
SELECT ...;      a query; it ends with a semicolon
.tables          the topics
.schema TOPIC    the columns of a topic, and the format of its values
.quit            exit, like Ctrl-D
Quote "offset", and names with characters other than letters. Times are in UTC."""
WORDS = ("select", "from", "where", "group by", "order by", "limit", "count(*)", "timestamp", "partition", ".schema")


def script_parts(text: str) -> list[str]:
    """Return the statements and dot commands in a text, in order.

    A dot command is on a line of its own, before or after a statement that ends with a semicolon.

    >>> script_parts(".tables\\nselect 1;\\nselect\\n2")
    ['.tables', 'select 1;\\nselect\\n2']
    """
    parts: list[str] = []
    sql = ""
    for line in text.splitlines():
        if line.lstrip().startswith(".") and (not sql.strip() or sql.rstrip().endswith(";")):
            parts += [sql.strip(), line.strip()]
            sql = ""
        else:
            sql += f"{line}\n"
    return [part for part in (*parts, sql.strip()) if part]


class Prompt:
    """Reads statements and prints their results until the user exits."""

    def __init__(self, engine: Engine, topics: Topics, make_writer: MakeWriter) -> None:
        self._engine = engine
        self._topics = topics
        self._make_writer = make_writer
        self._names: Sequence[str] = ()

    def run(self) -> None:
        """Run the prompt until the user exits."""
        click.echo(WELCOME, err=True)
        with contextlib.suppress(BarnabasError):
            self._names = self._topics.names()
        with _history(default_history_file()), contextlib.suppress(EOFError):
            if readline is not None:
                readline.set_completer(self._complete)
                readline.parse_and_bind("tab: complete")
            while True:
                try:
                    self._take(self._read())
                except KeyboardInterrupt:
                    click.echo("\ninterrupted", err=True)

    def run_script(self, parts: Sequence[str]) -> None:
        """Run statements and commands one after the other, up to `.quit`.

        :raises BarnabasError: a statement failed; the later ones are not run.
        """
        for part in parts:
            if not part.startswith("."):
                self._show(part, with_times=False)
                continue
            try:
                self._obey(part)
            except EOFError:
                return

    def _read(self) -> str:
        """Read a statement or a dot command from the terminal; empty after Ctrl-C."""
        text = ""
        try:
            while True:
                text += input("      ...> " if text else "barnabas> ") + "\n"
                if text.lstrip().startswith(".") or not text.strip() or text.rstrip().endswith(";"):
                    return text.strip()
        except KeyboardInterrupt:
            click.echo()
            return ""

    def _take(self, text: str) -> None:
        try:
            if text.startswith("."):
                self._obey(text)
            elif text:
                self._show(text)
        except (BarnabasError, OSError) as error:
            click.echo(explain(error), err=True)

    def _obey(self, command: str) -> None:
        name, _, rest = command.rstrip(";").partition(" ")
        topic = rest.strip().strip('"')
        if name in (".quit", ".exit", ".q"):
            raise EOFError
        if name in (".tables", ".topics"):
            self._names = self._topics.names()
            for each in self._names:
                click.echo(each)
        elif name == ".schema" and topic:
            table = self._topics.get(topic)
            show_table(["column", "type"], [[field.name, str(field.type)] for field in table.schema])
            click.echo(f"values are {table.rows.values.format}", err=True)
        else:
            click.echo(HELP)

    def _show(self, text: str, *, with_times: bool = True) -> None:
        for query in self._engine.split(text):
            began, count = SYSTEM_CLOCK.monotonic(), 0
            result = self._engine.run(query)
            writer = self._make_writer(result.schema, sys.stdout)
            with contextlib.closing(result.batches):
                for batch in result.batches:
                    writer.write(batch)
                    count += batch.num_rows
            writer.finish()
            sys.stdout.flush()
            took_s = SYSTEM_CLOCK.monotonic() - began
            if with_times:
                click.echo(f"({count:,} {'row' if count == 1 else 'rows'}, {took_s:.2f} s)", err=True)

    def _complete(self, text: str, number: int) -> str | None:
        fitting = [word for word in (*self._names, *WORDS) if word.startswith(text)]
        return fitting[number] if number < len(fitting) else None


def default_history_file() -> Path:
    """Return the path of the history: `barnabas/sql_history` in XDG_STATE_HOME, by default ~/.local/state."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "barnabas" / "sql_history"


@contextlib.contextmanager
def _history(file: Path) -> Iterator[None]:
    """Load the history on entry and store it on exit. Ignore errors of the history file."""
    if readline is None:
        yield
        return
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(HISTORY_LINES)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(file)
