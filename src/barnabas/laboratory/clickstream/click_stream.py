"""The click stream, which generates events period by period and yields them in order of arrival."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from barnabas.laboratory.clickstream.ground_truth import GroundTruth
from barnabas.laboratory.clickstream.random_draws import RandomDraws
from barnabas.laboratory.clickstream.records import record_batch
from barnabas.laboratory.clickstream.sessions import (
    BOT_SHARE,
    CLICK,
    EVENTS_PER_BOT_SESSION,
    EVENTS_PER_SESSION,
    Events,
    assign_ids_and_arrivals,
    bot_sessions,
    member_sessions,
)
from barnabas.laboratory.clickstream.site_model import HOUR_MS, ClickSettings, SiteModel, day_factor

WARM_UP_MS = 1_200_000
STRETCH_MS_MAX = 600_000
STRETCH_EVENTS = 40_000
BATCH_RECORDS = 10_000
_STRETCHES = 3


class ClickStream:
    """An endless stream of events, and the expected figures of the events yielded so far. Not thread-safe."""

    def __init__(self, settings: ClickSettings) -> None:
        self.site = SiteModel(settings)
        self.truth = GroundTruth(self.site)

    def batches(self, count: int | None = None, at_most: int = BATCH_RECORDS) -> Iterator[pa.RecordBatch]:
        """Yield batches with the columns key, value and timestamp.

        :param count: the total number of events; None for an endless stream.
        :param at_most: the maximum number of rows per batch. The batch size does not change the events.
        """
        for events in self.events(count, at_most):
            yield record_batch(self.site, events)

    def events(self, count: int | None = None, at_most: int = BATCH_RECORDS) -> Iterator[Events]:
        """Yield batches of events. The expected figures include a batch as soon as the caller requests the next
        batch."""
        left = count
        for arrived in _arriving(self.site):
            for start in range(0, len(arrived), at_most):
                part = arrived.take(slice(start, start + (at_most if left is None else min(at_most, left))))
                yield part
                self.truth.add(part)
                if left is not None:
                    left -= len(part)
                    if not left:
                        return


def _arriving(site: SiteModel) -> Iterator[Events]:
    """Yield the events that arrive in each period, including late events of earlier periods."""
    waiting = Events.of(0)
    for events, end_ms in _happening(site):
        waiting = Events.joined([waiting, events])
        order = np.lexsort((waiting.id, waiting.arrival))
        arrived = int(np.searchsorted(waiting.arrival[order], end_ms))
        yield waiting.take(order[:arrived])
        waiting = waiting.take(order[arrived:])


def _happening(site: SiteModel) -> Iterator[tuple[Events, int]]:
    """Yield the events of the sessions that begin in each period, and the end of the period in milliseconds. An event
    of a later period never arrives before this end.
    """
    settings = site.settings
    # Generate the sessions that begin before the stream's start, and keep their events after the start. Otherwise the
    # stream would start slowly.
    start_ms, session, event_id, stretch = max(0, settings.start_ms - WARM_UP_MS), 0, 0, 0
    people, bots = 0.0, 0.0  # A period has a whole number of sessions; the fraction carries over to the next period.
    while True:
        per_ms = settings.events_per_s / 1000
        if settings.daily:
            per_ms *= float(day_factor(np.array([start_ms]))[0])
        to_next_hour = HOUR_MS - start_ms % HOUR_MS
        length_ms = max(1, min(STRETCH_MS_MAX, to_next_hour, int(STRETCH_EVENTS / per_ms)))
        bot_share = BOT_SHARE if settings.bots else 0.0
        people += per_ms * length_ms * (1 - bot_share) / EVENTS_PER_SESSION
        bots += per_ms * length_ms * bot_share / EVENTS_PER_BOT_SESSION
        draw = RandomDraws(settings.seed, _STRETCHES, stretch)
        parts = []
        for begin, due in ((member_sessions, int(people)), (bot_sessions, int(bots))):
            part = begin(site, draw, start_ms, length_ms, due, session)
            assign_ids_and_arrivals(draw, part, event_id)
            session, event_id = session + due, event_id + len(part)
            parts.append(part)
        people, bots = people % 1.0, bots % 1.0
        start_ms, stretch = start_ms + length_ms, stretch + 1
        events = Events.joined(parts)
        is_of_stream = np.where(events.kind == CLICK, events.impression_time, events.time) >= settings.start_ms
        yield events.take(np.flatnonzero(is_of_stream)), start_ms
