"""What `consume -o` means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from barnabas.cli.consume_span import Anchor, Bound, Span, parse_position, parse_span, resolve
from barnabas.model import OffsetAndTimestamp, TopicPartition

TP = TopicPartition("clicks", 0)


class Offsets:
    """A partition with the records 100 to 199, whose timestamps are their offsets."""

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 100)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 200)

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return {
            tp: OffsetAndTimestamp(max(time, 100), max(time, 100)) if time < 200 else None
            for tp, time in timestamps_ms.items()
        }


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("beginning", 100),
        ("earliest", 100),
        ("end", 200),
        ("150", 150),
        ("7", 100),
        ("900", 200),
        ("-10", 190),
        ("-1000", 100),
        ("s@120", 120),
        ("s@1000", 200),
    ],
)
def test_start_is_resolved_within_the_log(text: str, offset: int) -> None:
    assert resolve(parse_span([text]).start, [TP], Offsets()) == {TP: offset}


def test_stop_time_is_the_first_offset_that_is_not_read() -> None:
    span = parse_span(["s@110", "e@130"])
    assert span.stop == Bound(Anchor.TIMESTAMP, 130)
    assert resolve(span.stop, [TP], Offsets()) == {TP: 130}


@pytest.mark.parametrize(
    ("text", "start_ms", "stop_ms"),
    [
        ("@110", 110, None),
        ("@110:130", 110, 130),
        ("@1970-01-01T00:00:00.110:1970-01-01T01:00:00.130+01:00", 110, 130),
        ("@1970-01-01T00:00", 0, None),
        ("@1970-01-01T00:00:1970-01-02", 0, 86_400_000),
        ("@1970-01-01:1970-01-02", 0, 86_400_000),
    ],
)
def test_times_are_given_as_in_rpk(text: str, start_ms: int, stop_ms: int | None) -> None:
    stop = None if stop_ms is None else Bound(Anchor.TIMESTAMP, stop_ms)
    assert parse_span([text]) == Span(Bound(Anchor.TIMESTAMP, start_ms), stop)


def test_range_between_times_before_now_has_the_exact_length() -> None:
    span = parse_span(["@-2h:-1h"])
    assert span.stop is not None
    assert span.stop.number - span.start.number == 3_600_000
    assert parse_span(["s@-1h"]).start.anchor is Anchor.TIMESTAMP


@pytest.mark.parametrize("texts", [["@-1h:-2h"], ["s@130", "e@110"]])
def test_range_that_ends_before_its_start_is_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="the start is after the end"):
        parse_span(texts)


@pytest.mark.parametrize(
    ("text", "offset"),
    [("150", 150), ("-10", 190), ("end", 200), ("@120", 120), ("1970-01-01T00:00:00.130", 130), ("-1h", 200)],
)
def test_position_is_an_offset_or_a_time(text: str, offset: int) -> None:
    assert resolve(parse_position(text), [TP], Offsets()) == {TP: offset}


@pytest.mark.parametrize("text", ["", "soon", "@", "@soon", "1.5"])
def test_position_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is (neither an offset|not a time)"):
        parse_position(text)


def test_without_options_all_is_read_and_followed() -> None:
    assert parse_span([]) == Span(Bound(Anchor.BEGINNING), None)


@pytest.mark.parametrize("text", ["", "soon", "--3", "1.5", "-", "٣"])
def test_what_is_no_offset_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(ValueError, match="is not an offset; use beginning, end"):
        parse_span([text])


@pytest.mark.parametrize("text", ["s@", "e@x", "@", "@x:y", "@1:x"])
def test_what_is_no_time_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time; use milliseconds since 1970, ISO 8601 such as"):
        parse_span([text])
