"""Converts events to records. The values are JSON, as a web tracker would send it, and the keys are members.

    {"type":"impression","id":"e41","time":1767225600123,"member":"m17","session":"s3","address":"10.0.0.9","item":"i5","position":2}
    {"type":"click","id":"e99","time":1767225604001,"member":"m17","session":"s3","address":"10.0.0.9","item":"i5","impression":"e41"}
    {"type":"share", ... "item":"i5"}
    {"type":"follow", ... "follows":"m2"}

The timestamp of a record is the time of the event. Arrow builds the JSON text by concatenating columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.laboratory.clickstream.random_draws import Ints
from barnabas.laboratory.clickstream.sessions import CLICK, FOLLOW, IMPRESSION, KINDS, SHARE, Events
from barnabas.laboratory.clickstream.site_model import SiteModel

BOT_NETWORK = 172 << 24 | 16 << 16
NETWORK = 10 << 24
_NUMBERED = {"id": "e", "member": "m", "session": "s", "item": "i", "impression": "e", "follows": "m"}
"""The letter that precedes the number in each column, such as `m` in `m17`."""
_FIELDS = {
    IMPRESSION: ("item", "position"),
    CLICK: ("item", "impression"),
    SHARE: ("item",),
    FOLLOW: ("follows",),
}


def record_batch(site: SiteModel, events: Events) -> pa.RecordBatch:
    """Return the columns key, value and timestamp of events in their order."""
    values = [_values(site, kind, events.take(np.flatnonzero(events.kind == kind))) for kind in range(len(KINDS))]
    by_kind = np.argsort(events.kind, kind="stable")
    place = np.empty_like(by_kind)
    place[by_kind] = np.arange(len(by_kind))
    return pa.record_batch(
        {
            "key": _named("m", events.member),
            "value": pa.concat_arrays(values).take(pa.array(place)),
            "timestamp": pa.array(events.time).cast(pa.timestamp("ms")),
        }
    )


def address_numbers(site: SiteModel, members: Ints) -> Ints:
    """Return the IPv4 addresses of members and bots as numbers."""
    people = site.settings.member_count
    of_people = NETWORK + site.member_address[np.minimum(members, people - 1)]
    numbers: Ints = np.where(members < people, of_people, BOT_NETWORK + members - people)
    return numbers


def address_texts(numbers: Ints) -> pa.Array:
    """Return IPv4 addresses as text.

    >>> address_texts(np.array([NETWORK + 258])).to_pylist()
    ['10.0.1.2']
    """
    parts = [pa.array(numbers >> shift & 255).cast(pa.string()) for shift in (24, 16, 8, 0)]
    return pc.binary_join_element_wise(*parts, ".")


def _named(letter: str, numbers: Ints) -> pa.Array:
    return pc.binary_join_element_wise(letter, pa.array(numbers).cast(pa.string()), "")


def _values(site: SiteModel, kind: int, events: Events) -> pa.Array:
    """Return the JSON values of events of one kind."""
    parts: list[Any] = [f'{{"type":"{KINDS[kind]}","id":"e', _text(events.id), '","time":', _text(events.time)]
    parts += [',"member":"m', _text(events.member), '","session":"s', _text(events.session)]
    parts += ['","address":"', address_texts(address_numbers(site, events.member)), '"']
    for field in _FIELDS[kind]:
        letter = _NUMBERED.get(field)
        quote = "" if letter is None else '"'
        parts += [f',"{field}":{quote}{letter or ""}', _text(getattr(events, field)), quote]
    return pc.binary_join_element_wise(*parts, "}", "") if len(events) else pa.array([], pa.string())


def _text(numbers: Ints) -> pa.Array:
    return pa.array(numbers).cast(pa.string())
