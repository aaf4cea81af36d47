"""A progress bar on standard error, drawn only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def byte_progress(description: str, total_bytes: int) -> Iterator[Advance]:
    """Show the progress in bytes; yield the function to call with the number of bytes of each step."""
    if not sys.stderr.isatty() or not total_bytes:
        yield lambda _step_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.progress import TransferSpeedColumn as SpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        SpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total_bytes)
        yield lambda step_bytes: bar.advance(task, step_bytes)


@contextmanager
def record_progress(description: str, total: int) -> Iterator[Advance]:
    """Show the progress in records; yield the function to call with the number of records of each step."""
    if not sys.stderr.isatty() or not total:
        yield lambda _step: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda step: bar.advance(task, step)
