"""What a workload is: a name, where it is told, and a function that measures it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.contest import Contest
from bench.results import Case

Measure = Callable[[Contest], Sequence[Case]]


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload of the paper or of the article.

    :param title: in the page's heading.
    :param told: where, and the figure there.
    :param about: what is measured how, in sentences for the page.
    """

    name: str
    title: str
    told: str
    about: str
    measure: Measure
