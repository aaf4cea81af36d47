"""Snapshots: rendered once for many, with rests."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from barnabas.clock import ManualClock
from barnabas.metrics.exposition import (
    LINES_PER_REST,
    PIECE_BYTES_MIN,
    REST_S,
    SNAPSHOT_AGE_S_MAX,
    Snapshots,
    exposition,
)
from barnabas.metrics.metric import Histogram, Sample, gauge, histogram

SIZE = gauge("barnabas_test_size", "Size.", "topic")
TIMES = histogram("barnabas_test_seconds", "Times.", (0.5, 1.0), "request")


def test_a_histogram_has_cumulative_buckets_a_count_and_a_sum() -> None:
    times = Histogram(TIMES.bounds)
    for value in (0.25, 0.5, 0.75, 8.0):
        times.observe(value)
    (family,) = text_string_to_metric_families(exposition([TIMES.sample(times.read(), "Fetch")]).decode())
    assert (family.type, {each.labels["request"] for each in family.samples}) == ("histogram", {"Fetch"})
    assert [(each.name.removeprefix(TIMES.name), each.labels.get("le"), each.value) for each in family.samples] == [
        ("_bucket", "0.5", 2),
        ("_bucket", "1.0", 3),
        ("_bucket", "+Inf", 4),
        ("_count", None, 4),
        ("_sum", None, 9.5),
    ]


def test_samples_of_a_metric_come_together_in_whatever_order_they_are_read() -> None:
    samples = [SIZE.sample(1, "a"), TIMES.sample(Histogram(TIMES.bounds).read(), "x"), SIZE.sample(2, "b")]
    text = exposition(samples).decode()
    assert text.count("# TYPE barnabas_test_size") == 1
    assert text.index('barnabas_test_size{topic="b"}') < text.index("# TYPE barnabas_test_seconds")


def test_a_snapshot_serves_all_who_ask_within_a_second() -> None:
    clock, taken = ManualClock(), list[float]()

    def collect() -> Iterator[Sample]:
        taken.append(clock.monotonic())
        yield SIZE.sample(len(taken), "clicks")

    snapshots = Snapshots(collect, clock, lambda _s: None)
    first = snapshots.pieces()
    clock.advance(SNAPSHOT_AGE_S_MAX)
    assert snapshots.pieces() is first
    clock.advance(0.01)
    assert b'barnabas_test_size{topic="clicks"} 2.0\n' in b"".join(snapshots.pieces())
    assert taken == [0.0, SNAPSHOT_AGE_S_MAX + 0.01]


def test_small_metrics_share_the_pieces_that_a_scrape_sends() -> None:
    few = [gauge(f"barnabas_test_{number}", "Size.").sample(number) for number in range(100)]
    many = [SIZE.sample(number, f"topic-{number}") for number in range(PIECE_BYTES_MIN // 16)]
    pieces = Snapshots(lambda: [*few, *many], ManualClock(), lambda _s: None).pieces()
    assert len(pieces) == 2
    assert pieces[0] == exposition([*few, *many])


def test_a_snapshot_that_failed_is_taken_again() -> None:
    left = [RuntimeError("odd")]

    def collect() -> Iterator[Sample]:
        if left:
            raise left.pop()
        yield SIZE.sample(1, "clicks")

    snapshots = Snapshots(collect, ManualClock(), lambda _s: None)
    for _ in range(2):
        try:
            text = b"".join(snapshots.pieces())
        except RuntimeError:
            text = b""
    assert b"barnabas_test_size" in text


def test_the_thread_rests_during_work_without_samples() -> None:
    rests: list[float] = []
    items = (SIZE.sample(1, "a") if number == 0 else None for number in range(10 * LINES_PER_REST))
    snapshots = Snapshots(lambda: items, ManualClock(), rests.append)
    assert b"".join(snapshots.pieces()).count(b"\nbarnabas_test_size{") == 1
    assert len(rests) == 10


def test_the_thread_rests_after_each_piece_of_reading_and_of_rendering() -> None:
    clock, rests = ManualClock(), list[float]()
    snapshots = Snapshots(lambda: (SIZE.sample(n, str(n)) for n in range(10 * LINES_PER_REST)), clock, rests.append)
    snapshots.pieces()
    assert rests == [REST_S] * 20
