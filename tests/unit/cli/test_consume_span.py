"""What `consume -o` means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from barnabas.cli.consume_span import Anchor, Bound, Span, parse_span, resolve
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


def test_without_options_all_is_read_and_followed() -> None:
    assert parse_span([]) == Span(Bound(Anchor.BEGINNING), None)


@pytest.mark.parametrize("text", ["", "soon", "--3", "1.5", "-", "٣"])
def test_what_is_no_offset_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(ValueError, match="is not an offset; use beginning, end"):
        parse_span([text])


@pytest.mark.parametrize("text", ["s@", "e@x"])
def test_what_is_no_time_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time; use milliseconds since 1970, or ISO 8601"):
        parse_span([text])
