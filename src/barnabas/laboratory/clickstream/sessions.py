"""Generates the sessions of members and bots in a period of time, as columns of events.

A session is a sequence of impressions of one member. Some impressions are clicked, some clicked items are shared, and
sometimes a member follows another one. An event arrives shortly after it happened. One percent of the events arrive up
to ten minutes later, like events from phones without reception. A click arrives after its impression.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from barnabas.laboratory.clickstream.random_draws import Floats, Ints, RandomDraws
from barnabas.laboratory.clickstream.site_model import HOUR_MS, SiteModel, day_factor

IMPRESSION, CLICK, SHARE, FOLLOW = range(4)
KINDS = ("impression", "click", "share", "follow")
NONE = -1

EVENTS_PER_SESSION = 8.1
EVENTS_PER_BOT_SESSION = 360.0
BOT_SHARE = 0.05
LENGTH_MEAN, LENGTH_MAX = 7.0, 40
PAUSE_MEAN_S, BOT_PAUSE_MEAN_S = 20.0, 0.5
IN_GROUP, IN_FASHION = 0.8, 0.15
CLICK_AFTER_MEAN_S, CLICK_AFTER_MAX_S = 8.0, 600.0
BOT_CLICKS, BOT_ON_ITEM = 0.6, 0.7
SHARES, FOLLOWS = 0.15, 0.3
LATE_SHARE, LATE_MAX_S, ARRIVES_AFTER_MEAN_S = 0.01, 600.0, 0.3


@dataclass(slots=True)
class Events:
    """Events as columns. Times are in milliseconds. NONE means that this kind of event does not have the column."""

    kind: Ints
    id: Ints
    time: Ints
    arrival: Ints
    member: Ints
    session: Ints
    item: Ints
    position: Ints
    impression: Ints
    impression_time: Ints
    follows: Ints

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, which: Ints | slice) -> Events:
        """Return the events at the given rows."""
        return Events(*(getattr(self, field.name)[which] for field in fields(self)))

    @classmethod
    def joined(cls, parts: list[Events]) -> Events:
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    @classmethod
    def of(cls, count: int, **given: Ints | int) -> Events:
        """Return events with the given columns. All other columns are NONE."""
        return cls(*(np.broadcast_to(given.get(f.name, NONE), count).astype(np.int64) for f in fields(cls)))


def member_sessions(
    site: SiteModel, draw: RandomDraws, start_ms: int, length_ms: int, count: int, first: int
) -> Events:
    """Return the events of member sessions that begin in a period.

    :param first: the number of the first session.
    """
    members = draw.ranks(site.activity, count)
    lengths = 1 + np.minimum(draw.exponential(LENGTH_MEAN - 0.5, count), LENGTH_MAX - 1).astype(np.int64)
    groups = site.interests[members, draw.below(2, count)]
    row, position = _spread(lengths)
    time = _times(draw, draw.uniform(count, start_ms, start_ms + length_ms), row, position, PAUSE_MEAN_S)
    item = _items(site, draw, groups[row], start_ms)
    chance = site.click_chance[item] * (0.7 + 0.3 * day_factor(time))
    seen = Events.of(
        len(row), kind=IMPRESSION, time=time, member=members[row], session=first + row, item=item, position=position
    )
    happened = _with_clicks(draw, seen, chance)
    clicks = happened.take(np.flatnonzero(happened.kind == CLICK))
    shared = clicks.take(np.flatnonzero(draw.chance(SHARES, len(clicks))))
    follower = np.flatnonzero(draw.chance(FOLLOWS, count))
    followed = draw.ranks(site.fame, len(follower))
    started = time[np.cumsum(lengths) - lengths]
    follows = Events.of(
        len(follower),
        kind=FOLLOW,
        time=started[follower] + 500,
        member=members[follower],
        session=first + follower,
        follows=followed,
    )
    follows = follows.take(np.flatnonzero(follows.member != follows.follows))
    shares = Events.of(
        len(shared),
        kind=SHARE,
        time=shared.time + 2_000,
        member=shared.member,
        session=shared.session,
        item=shared.item,
    )
    return Events.joined([happened, shares, follows])


def bot_sessions(site: SiteModel, draw: RandomDraws, start_ms: int, length_ms: int, count: int, first: int) -> Events:
    """Return the events of bot sessions, which are long and fast and mostly concern one item."""
    bots = draw.below(site.settings.bots, count)
    lengths = 150 + draw.below(150, count)
    row, position = _spread(lengths)
    time = _times(draw, draw.uniform(count, start_ms, start_ms + length_ms), row, position, BOT_PAUSE_MEAN_S)
    wanted = draw.chance(BOT_ON_ITEM, len(row))
    item = np.where(wanted, site.bot_item[bots[row]], draw.below(site.settings.items, len(row)))
    seen = Events.of(
        len(row),
        kind=IMPRESSION,
        time=time,
        member=site.settings.member_count + bots[row],
        session=first + row,
        item=item,
        position=position,
    )
    return _with_clicks(draw, seen, BOT_CLICKS)


def assign_ids_and_arrivals(draw: RandomDraws, events: Events, first_id: int) -> None:
    """Assign the ids and arrival times of events.

    Before the call, the column `impression` of a click contains the row of its impression; afterwards, the id of the
    impression.
    """
    count = len(events)
    events.id = first_id + np.arange(count, dtype=np.int64)
    delay_s = draw.exponential(ARRIVES_AFTER_MEAN_S, count)
    is_late = draw.chance(LATE_SHARE, count)
    delay_s = np.where(is_late, draw.uniform(count, 0.0, LATE_MAX_S), delay_s)
    events.arrival = events.time + (delay_s * 1000).astype(np.int64)
    clicks = np.flatnonzero(events.kind == CLICK)
    seen = events.impression[clicks]
    events.arrival[clicks] = np.maximum(events.arrival[clicks], events.arrival[seen] + 1)
    events.impression[clicks] = events.id[seen]


def _spread(lengths: Ints) -> tuple[Ints, Ints]:
    """Return the session row and the position in the session of each impression.

    :param lengths: the number of impressions of each session.
    """
    row = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    starts = np.cumsum(lengths) - lengths
    return row, np.arange(len(row), dtype=np.int64) - starts[row]


def _times(draw: RandomDraws, begin_ms: Floats, row: Ints, position: Ints, pause_mean_s: float) -> Ints:
    """Return the time of each impression: the start of the session plus all pauses up to the impression."""
    pauses = np.where(position == 0, 0.0, draw.exponential(pause_mean_s * 1000, len(row)) + 100)
    passed = np.cumsum(pauses)
    firsts = np.flatnonzero(position == 0)
    since = passed - passed[firsts][row]
    times: Ints = (begin_ms[row] + since).astype(np.int64)
    return times


def _items(site: SiteModel, draw: RandomDraws, groups: Ints, start_ms: int) -> Ints:
    """Return the item of each impression. Most items belong to the session's group; some are other popular items or the
    trending item.
    """
    count = len(groups)
    anywhere = site.item_of_rank[draw.ranks(site.popularity, count)]
    related = site.group_items[groups, draw.ranks(site.within_group, count)]
    item = np.where(draw.chance(IN_GROUP, count), related, anywhere)
    in_fashion = draw.chance(IN_FASHION, count)
    trend = site.trend(start_ms // HOUR_MS * HOUR_MS)
    return item if trend is None else np.where(in_fashion, trend, item)


def _with_clicks(draw: RandomDraws, seen: Events, chance: Floats | float) -> Events:
    """Return impressions together with their clicks. The column `impression` of a click contains the row of its
    impression."""
    at = np.flatnonzero(draw.chance(chance, len(seen)))
    clicked = seen.take(at)
    after_s = np.minimum(draw.exponential(CLICK_AFTER_MEAN_S, len(at)), CLICK_AFTER_MAX_S)
    clicks = Events.of(
        len(at),
        kind=CLICK,
        time=clicked.time + 300 + (after_s * 1000).astype(np.int64),
        member=clicked.member,
        session=clicked.session,
        item=clicked.item,
        impression=at,
        impression_time=clicked.time,
    )
    return Events.joined([seen, clicks])
