"""The figures that reports on a click stream must show."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field

import numpy as np

from barnabas.laboratory.clickstream.random_draws import Ints
from barnabas.laboratory.clickstream.records import address_numbers, address_texts
from barnabas.laboratory.clickstream.sessions import CLICK, IMPRESSION, Events
from barnabas.laboratory.clickstream.site_model import HOUR_MS, SiteModel


@dataclass(slots=True)
class HourlyTruth:
    """The number of impressions in an hour, and the number of these impressions that were clicked, even much later."""

    hour_ms: int
    impressions: int = 0
    clicked: int = 0
    impressions_of_bots: int = 0
    clicked_by_bots: int = 0


@dataclass(slots=True)
class GroundTruth:
    """A counter of the events that a click stream has yielded."""

    site: SiteModel
    events: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    _hours: dict[int, HourlyTruth] = field(default_factory=dict)
    _bot_events: Counter[int] = field(default_factory=Counter)
    _seen: Ints = field(init=False)

    def __post_init__(self) -> None:
        self._seen = np.zeros(self.site.settings.items, dtype=np.int64)

    def add(self, events: Events) -> None:
        if not len(events):
            return
        self.events += len(events)
        first, last = int(events.time.min()), int(events.time.max())
        self.first_ms = first if self.first_ms is None else min(first, self.first_ms)
        self.last_ms = last if self.last_ms is None else max(last, self.last_ms)
        is_bot = events.member >= self.site.settings.member_count
        bots, counts = np.unique(events.member[is_bot], return_counts=True)
        self._bot_events.update(dict(zip(bots.tolist(), counts.tolist(), strict=True)))
        seen, clicks = events.kind == IMPRESSION, events.kind == CLICK
        self._seen += np.bincount(events.item[seen], minlength=len(self._seen))
        self._count("impressions", events.time[seen])
        self._count("clicked", events.impression_time[clicks])
        self._count("impressions_of_bots", events.time[seen & is_bot])
        self._count("clicked_by_bots", events.impression_time[clicks & is_bot])

    def _count(self, name: str, times_ms: Ints) -> None:
        hours, counts = np.unique(times_ms // HOUR_MS, return_counts=True)
        for hour, count in zip(hours.tolist(), counts.tolist(), strict=True):
            truth = self._hours.setdefault(hour, HourlyTruth(hour * HOUR_MS))
            setattr(truth, name, getattr(truth, name) + count)

    def hours(self) -> list[HourlyTruth]:
        """Return the number of impressions and clicks per hour. A click is counted in the hour of its impression."""
        return [self._hours[hour] for hour in sorted(self._hours)]

    def bots(self) -> dict[str, int]:
        """Return the number of events by the address of each bot."""
        members = sorted(self._bot_events)
        texts = address_texts(address_numbers(self.site, np.array(members, dtype=np.int64))).to_pylist()
        return {text: self._bot_events[member] for text, member in zip(texts, members, strict=True)}

    def groups(self) -> list[list[str]]:
        """Return the groups of related items."""
        return [[f"i{item}" for item in sorted(group)] for group in self.site.group_items.tolist()]

    def trends(self) -> list[dict[str, object]]:
        """Return the trending items with the hours of their trends."""
        if self.first_ms is None or self.last_ms is None:
            return []
        hours = range(self.first_ms // HOUR_MS, self.last_ms // HOUR_MS + 1)
        items = {hour: self.site.trend(hour * HOUR_MS) for hour in hours}
        return [{"item": f"i{item}", "hour_ms": hour * HOUR_MS} for hour, item in items.items() if item is not None]

    def impressions(self) -> dict[str, int]:
        """Return the number of impressions of each item, the most popular first."""
        order = np.lexsort((np.arange(len(self._seen)), -self._seen))
        return {f"i{item}": int(self._seen[item]) for item in order.tolist() if self._seen[item]}

    def to_json(self) -> dict[str, object]:
        """Return all figures."""
        settings = self.site.settings
        return {
            "settings": {**asdict(settings), "members": settings.member_count},
            "events": self.events,
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
            "ctr": [asdict(hour) for hour in self.hours()],
            "bots": self.bots(),
            "groups": self.groups(),
            "trends": self.trends(),
            "impressions": self.impressions(),
        }
