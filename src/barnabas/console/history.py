"""The recent history of offsets and lag, for rates and charts."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from itertools import islice

SAMPLES_MAX = 720
"""The number of samples that are kept. With a sample every five seconds, this is one hour."""
SERIES_MAX = 20_000
RATE_SAMPLES = 3
"""The number of samples over which a rate is averaged."""


class History:
    """Samples of many series at common times.

    A series that appears later has no values before. A series without a value in the newest sample is dropped.
    """

    def __init__(self) -> None:
        self.times_s: array[float] = array("d")
        self._series: dict[str, array[float]] = {}

    def note(self, time_s: float, values: Mapping[str, float]) -> None:
        """Add a sample. Values above `SERIES_MAX` series are left out."""
        self.times_s.append(time_s)
        kept: dict[str, array[float]] = {}
        for name, value in islice(values.items(), SERIES_MAX):
            series = self._series.get(name) or array("d")
            series.append(value)
            kept[name] = series
        self._series = kept
        if len(self.times_s) > SAMPLES_MAX:
            del self.times_s[0]
            for series in kept.values():
                if len(series) > SAMPLES_MAX:
                    del series[0]

    def values(self, name: str) -> tuple[list[float], list[float]]:
        """Return the times and the values of a series."""
        series = self._series.get(name, array("d"))
        return list(self.times_s[len(self.times_s) - len(series) :]), list(series)

    def newest(self, name: str) -> float | None:
        """Return the newest value of a series."""
        series = self._series.get(name)
        return series[-1] if series else None

    def rate(self, name: str) -> float | None:
        """Return the increase per second over the last samples; None before there are two."""
        series = self._series.get(name)
        if series is None or len(series) < 2:
            return None
        count = min(RATE_SAMPLES, len(series))
        passed_s = self.times_s[-1] - self.times_s[-count]
        return (series[-1] - series[-count]) / passed_s if passed_s > 0 else None

    def names(self) -> Iterable[str]:
        return self._series.keys()
