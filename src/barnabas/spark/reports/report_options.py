"""The options of reports, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.errors import ConfigurationError
from barnabas.reports.roles import Roles
from barnabas.spark.streams.durations import duration_ms

TOP_MAX = 1_000


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The columns of the events, and the parameters of reports.

    :param top: The number of rows to show.
    :param window: The length of a time window.
    :param gap: The time without events after which a visitor's session ends, if there is no session column.
    :param within: The maximum time from an impression to its click.
    :param threshold: The maximum number of events per minute from one address that are not reported as abuse.
    """

    roles: Roles
    top: int = 10
    window: str = "1 hour"
    gap: str = "30 minutes"
    within: str = "30 minutes"
    threshold: int = 60
    impression: str = "impression"
    click: str = "click"
    share: str = "share"
    follow: str = "follow"

    def __post_init__(self) -> None:
        if not 1 <= self.top <= TOP_MAX:
            raise ConfigurationError(f"top: {self.top} is not from 1 to {TOP_MAX:,}")
        if self.threshold < 1:
            raise ConfigurationError(f"threshold: {self.threshold} is not 1 or more")
        for name in ("window", "gap", "within"):
            duration_ms(getattr(self, name), name, least_ms=1_000)

    @property
    def per_window(self) -> str:
        """The length of the window for a title such as "events per hour"."""
        return f"per {self.window.removeprefix('1 ')}"
