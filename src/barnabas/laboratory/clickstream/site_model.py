"""The model of the site: members and their addresses, items, groups of related items, trends, bots.

The popularity of items follows Zipf's law. A member is interested in two groups of items, and each session is about one
of them. Every three hours, one item trends for an hour. Bots have their own addresses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from barnabas.errors import ConfigurationError
from barnabas.laboratory.clickstream.random_draws import Floats, Ints, RandomDraws, zipf

GROUP_ITEMS = 10
OFFICE_MEMBERS = 20
OFFICE_SHARE = 0.05
HOUSE_MEMBERS = 2
TREND_EVERY_HOURS = 3
HOUR_MS = 3_600_000
UNPOPULAR_RANK = 20
"""The minimum popularity rank of a trending item: only unpopular items trend."""

_WORLD, _TRENDS = 1, 2
_COUNT_MAX = 10_000_000


@dataclass(frozen=True, slots=True)
class ClickSettings:
    """The settings of a click stream.

    :param start_ms: the time of the first events, in milliseconds since the epoch.
    :param events_per_s: the average number of events per second of event time.
    :param daily: True if the rate varies over the day.
    :param members: the number of members; None to derive it from `events_per_s`.
    :param items: the number of items.
    :param bots: the number of bots.
    """

    seed: int = 0
    start_ms: int = 1_767_225_600_000
    events_per_s: float = 12.0
    members: int | None = None
    items: int = 1_000
    bots: int = 10
    daily: bool = True

    def __post_init__(self) -> None:
        counts = {"members": self.member_count, "items": self.items, "bots": self.bots}
        least = {"members": 10, "items": 10 * GROUP_ITEMS, "bots": 0}
        for name, count in counts.items():
            if not least[name] <= count <= _COUNT_MAX:
                raise ConfigurationError(f"{name}: {count:,} is not from {least[name]:,} to {_COUNT_MAX:,}")
        if not 0.001 <= self.events_per_s <= 10_000_000:
            raise ConfigurationError(f"events per second: {self.events_per_s} is not from 0.001 to 10,000,000")
        if self.seed < 0:
            raise ConfigurationError(f"seed: {self.seed} is negative")
        if not 0 <= self.start_ms <= 253_000_000_000_000:
            raise ConfigurationError(f"start: {self.start_ms} ms is not in the years 1970 to 9987")

    @property
    def member_count(self) -> int:
        if self.members is not None:
            return self.members
        return int(min(max(1_000, 2_000 * self.events_per_s), 1_000_000))


class SiteModel:
    """The members, bots and items of the site, drawn from the seed.

    `member_address` contains the address number of each member, and `bot_item` contains the item that each bot clicks.
    """

    def __init__(self, settings: ClickSettings) -> None:
        self.settings = settings
        draw = RandomDraws(settings.seed, _WORLD)
        members, items = settings.member_count, settings.items
        self.activity = zipf(members, 0.5)
        self.fame = zipf(members, 1.0)
        self.popularity = zipf(items, 1.0)
        self.item_of_rank: Ints = draw.permutation(items)
        self.group_count = items // GROUP_ITEMS
        self.group_items: Ints = draw.permutation(items)[: self.group_count * GROUP_ITEMS].reshape(-1, GROUP_ITEMS)
        self.within_group = zipf(GROUP_ITEMS, 0.5)
        taste = zipf(self.group_count, 0.5)
        self.interests: Ints = np.stack([draw.ranks(taste, members), draw.ranks(taste, members)], axis=1)
        self.click_chance: Floats = 0.03 + 0.15 * draw.uniform(items) ** 2
        self.member_address = _addresses(draw, members)
        self.bot_item: Ints = draw.below(items, settings.bots)

    def trend(self, time_ms: int) -> int | None:
        """Return the item that is popular at the given time, or None if no item is."""
        hour = time_ms // HOUR_MS
        if hour % TREND_EVERY_HOURS:
            return None
        draw = RandomDraws(self.settings.seed, _TRENDS, hour)
        rank = UNPOPULAR_RANK + int(draw.below(self.settings.items - UNPOPULAR_RANK, 1)[0])
        return int(self.item_of_rank[rank])


def day_factor(times_ms: Ints) -> Floats:
    """Return the event rate at the given times of day, relative to the average. The rate is lowest at 4:00 UTC."""
    hours = times_ms / HOUR_MS % 24
    factor: Floats = 1.0 - 0.6 * np.cos((hours - 4.0) * (2 * np.pi / 24))
    return factor


def _addresses(draw: RandomDraws, members: int) -> Ints:
    """Return the address number of each member: some members share the address of an office, others that of a
    household."""
    order = draw.permutation(members)
    in_offices = int(members * OFFICE_SHARE) // OFFICE_MEMBERS * OFFICE_MEMBERS
    offices = in_offices // OFFICE_MEMBERS
    place = np.arange(members, dtype=np.int64)
    numbers = np.where(place < in_offices, place // OFFICE_MEMBERS, offices + (place - in_offices) // HOUSE_MEMBERS)
    addresses = np.empty(members, dtype=np.int64)
    addresses[order] = numbers
    return addresses
