"""Does the same to many logs on threads, which wait for the disk side by side."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

R = TypeVar("R")
T = TypeVar("T")


def in_groups(threads: Executor, do: Callable[[T], R], items: list[T], size: int) -> list[R]:
    """Do something to all items, so many of them on a thread one after the other; return the results in their order."""
    groups = [items[start : start + size] for start in range(0, len(items), size)]
    return [done for group in threads.map(lambda group: [do(each) for each in group], groups) for done in group]
