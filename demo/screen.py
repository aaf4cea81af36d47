"""The display of the demo: a heading, a progress bar and the duration of each step.

On a terminal the bar and the live counts are updated. Otherwise only finished steps are printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

from barnabas.clock import SYSTEM_CLOCK, Clock
from demo.following import Seen

BAR_WIDTH = 40


class Screen:
    """The terminal output. Thread-safe, because rich is thread-safe."""

    def __init__(self, console: Console, clock: Clock = SYSTEM_CLOCK) -> None:
        self.console = console
        self._clock = clock
        self._step = 0

    def title(self, text: str) -> None:
        """Print the title of the demo."""
        self.console.print(f"\n[bold]Barnabas[/]: {text}\n")

    def note(self, text: str) -> None:
        """Print a line below the last step."""
        self.console.print(f"  [dim]{text}[/]", soft_wrap=True, highlight=False)

    @contextmanager
    def step(self, text: str) -> Iterator[StepView]:
        """Show a running step, and print it with its duration when it is done."""
        self._step += 1
        view = StepView(text)
        started = self._clock.monotonic()
        live = Live(view, console=self.console, refresh_per_second=8, transient=True)
        with live if self.console.is_terminal else _nothing():
            yield view
        seconds = self._clock.monotonic() - started
        self.console.print(
            f"[bold cyan]{self._step}[/] {text}: {view.outcome} [dim]({seconds:.1f} s)[/]",
            highlight=False,
            soft_wrap=True,
        )

    def show(self, content: RenderableType) -> None:
        self.console.print(content)


class DoneColumn(ProgressColumn):
    """The number of finished items and the total, if the total is known."""

    def render(self, task: Task) -> Text:
        return Text("" if task.total is None else f"{task.completed:,.0f} of {task.total:,.0f}", style="dim")


class StepView:
    """A running step: a bar with live counts below it. The code of the step sets `outcome` to the result."""

    def __init__(self, text: str) -> None:
        self.outcome = "done"
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(BAR_WIDTH),
            DoneColumn(),
        )
        self._bar = self._progress.add_task(text, total=None)
        self._seen: Seen | None = None

    def at_most(self, total: int) -> None:
        """Set the total."""
        self._progress.update(self._bar, total=total)

    def advance(self, count: int) -> None:
        """Add newly finished items."""
        self._progress.advance(self._bar, count)

    def set_done(self, done: int, text: str | None = None) -> None:
        """Set the number of finished items."""
        self._progress.update(self._bar, completed=done)
        if text is not None:
            self._progress.update(self._bar, description=text)

    def set_seen(self, seen: Seen) -> None:
        """Show the counts of the online consumer."""
        self._seen = seen

    def __rich__(self) -> RenderableType:
        return Group(self._progress, counts_table(self._seen)) if self._seen else self._progress


def counts_table(seen: Seen) -> Table:
    """Return the live counts as a row of columns."""
    counts: Mapping[str, int] = seen.counts or {}
    table = Table(title="the online consumer sees", title_justify="left", title_style="dim", padding=(0, 2))
    for name in sorted(counts):
        table.add_column(name, justify="right")
    table.add_column("all", justify="right", style="bold")
    table.add_row(*(f"{counts[name]:,}" for name in sorted(counts)), f"{seen.records:,}")
    return table


@contextmanager
def _nothing() -> Iterator[None]:
    yield
