"""The made-up click stream: the same bytes for a seed, in the order of arrival, and true to its own truth."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice

import pytest

from barnabas.errors import ConfigurationError
from barnabas.laboratory.clickstream.click_stream import ClickStream
from barnabas.laboratory.clickstream.site_model import HOUR_MS, ClickSettings

COUNT = 60_000
SETTINGS = ClickSettings(seed=3, events_per_s=3.0, bots=4)


def events(settings: ClickSettings = SETTINGS, count: int = COUNT, at_most: int = 10_000) -> list[bytes]:
    batches = ClickStream(settings).batches(count, at_most)
    return [value.encode() for batch in batches for value in batch.column("value").to_pylist()]


@pytest.fixture(scope="module")
def stream() -> tuple[ClickStream, list[dict[str, object]]]:
    """A stream that was read to its end, and its events."""
    made = ClickStream(SETTINGS)
    return made, [json.loads(value) for batch in made.batches(COUNT) for value in batch.column("value").to_pylist()]


def test_the_same_seed_gives_the_same_bytes_whatever_the_batches_are() -> None:
    assert events(count=5_000) == events(count=5_000, at_most=37) == events(count=6_000)[:5_000]
    assert events(count=5_000) != events(ClickSettings(seed=4, events_per_s=3.0, bots=4), 5_000)


def test_a_record_is_keyed_by_its_member_and_has_the_time_of_its_event() -> None:
    for batch in ClickStream(SETTINGS).batches(100):
        for row in batch.to_pylist():
            assert row["key"] == json.loads(row["value"])["member"]
        assert batch.column("timestamp").cast("int64").to_pylist() == [
            json.loads(value)["time"] for value in batch.column("value").to_pylist()
        ]


def test_an_event_has_what_events_of_its_kind_have(stream: tuple[ClickStream, list[dict[str, object]]]) -> None:
    shared = ["type", "id", "time", "member", "session", "address"]
    fields = {
        "impression": ["item", "position"],
        "click": ["item", "impression"],
        "share": ["item"],
        "follow": ["follows"],
    }
    assert {(event["type"], *event) for event in stream[1]} == {(kind, *shared, *own) for kind, own in fields.items()}
    assert len({event["id"] for event in stream[1]}) == COUNT


def test_a_click_comes_after_its_impression(stream: tuple[ClickStream, list[dict[str, object]]]) -> None:
    shown: dict[object, object] = {}
    for event in stream[1]:
        if event["type"] == "impression":
            shown[event["id"]] = event["item"]
        elif event["type"] == "click":
            assert shown[event["impression"]] == event["item"]


def test_some_events_are_late(stream: tuple[ClickStream, list[dict[str, object]]]) -> None:
    latest, late = 0, 0
    for event in stream[1]:
        late += int(event["time"]) < latest - 60_000
        latest = max(latest, int(event["time"]))
    assert 0.003 < late / COUNT < 0.02


def test_the_truth_is_that_of_the_events(stream: tuple[ClickStream, list[dict[str, object]]]) -> None:
    truth, found = stream[0].truth, stream[1]
    hours = {str(event["id"]): int(event["time"]) // HOUR_MS for event in found if event["type"] == "impression"}
    assert {hour.hour_ms // HOUR_MS: hour.impressions for hour in truth.hours()} == Counter(hours.values())
    clicked = Counter(hours[str(event["impression"])] for event in found if event["type"] == "click")
    assert {hour.hour_ms // HOUR_MS: hour.clicked for hour in truth.hours() if hour.clicked} == clicked
    assert truth.impressions() == Counter(event["item"] for event in found if event["type"] == "impression")
    bots = Counter(event["address"] for event in found if str(event["address"]).startswith("172.16."))
    assert truth.bots() == bots
    assert bots
    assert (truth.events, truth.first_ms) == (COUNT, min(int(event["time"]) for event in found))
    assert json.loads(json.dumps(truth.to_json()))["events"] == COUNT


def test_popularity_is_uneven_and_related_items_are_seen_together(
    stream: tuple[ClickStream, list[dict[str, object]]],
) -> None:
    truth = stream[0].truth
    counts = list(truth.impressions().values())
    assert sum(counts[: len(counts) // 10]) > sum(counts) / 3
    group_of = {item: number for number, group in enumerate(truth.groups()) for item in group}
    sessions: dict[object, set[int]] = {}
    lengths: Counter[object] = Counter()
    for event in stream[1]:
        if event["type"] == "impression" and str(event["address"]).startswith("10."):
            sessions.setdefault(event["session"], set()).add(group_of[str(event["item"])])
            lengths[event["session"]] += 1
    long = [session for session, length in lengths.items() if length >= 10]
    groups_seen = sum(len(sessions[session]) for session in long) / len(long)
    assert groups_seen < sum(lengths[session] for session in long) / len(long) / 2


def test_a_trend_lasts_an_hour_and_then_there_is_another(
    stream: tuple[ClickStream, list[dict[str, object]]],
) -> None:
    truth, found = stream[0].truth, stream[1]
    (first, *_) = truth.trends()
    counts: Counter[int] = Counter(
        int(event["time"]) // HOUR_MS
        for event in found
        if event["type"] == "impression" and event["item"] == first["item"]
    )
    ((hour, most), (_, second)) = counts.most_common(2)
    assert hour * HOUR_MS == first["hour_ms"]
    assert most > 2 * second


def test_a_stream_goes_on_without_end_and_its_truth_with_it() -> None:
    made = ClickStream(SETTINGS)
    assert sum(len(batch) for batch in islice(made.batches(None, 100), 30)) <= 3_000
    assert made.truth.events > 0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"items": 5}, "items: 5 is not from 100"),
        ({"events_per_s": 0.0}, "events per second: 0.0"),
        ({"seed": -1}, "seed: -1 is negative"),
        ({"bots": -1}, "bots: -1"),
        ({"members": 1}, "members: 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        ClickSettings(**wrong)  # type: ignore[arg-type]
