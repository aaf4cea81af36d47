"""Drives what the broker does in steps, without an event loop."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def at_once(steps: Generator[None, None, T]) -> T:
    """Do all steps and return what they return."""
    return counted(steps)[0]


def counted(steps: Generator[None, None, T]) -> tuple[T, int]:
    """Do all steps; return what they return, and how often they paused."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1
