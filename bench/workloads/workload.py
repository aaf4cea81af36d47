"""A workload: its name, its source, and the function that measures it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.contest import Contest
from bench.results import Case

Measure = Callable[[Contest], Sequence[Case]]


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload of the paper or of the article.

    :param title: the heading on the page.
    :param published: the figures that the paper or the article reports for this workload.
    :param about: the method, in sentences for the page.
    """

    name: str
    title: str
    published: str
    about: str
    measure: Measure
