"""The strip of an audited topic: cells by tier and range of event time."""

from __future__ import annotations

from barnabas.audit.balance import Balance, WindowBalance
from barnabas.audit.events import LOADED
from barnabas.audit.findings import STORED, Finding, Kind
from barnabas.audit.identities import Producer
from barnabas.audit.strip import CellState, Strip, strip_of

MINUTE_MS = 60_000
DAY_MS = 86_400_000
ONE = Producer(7, 0, 0)


def balance_of(*windows: WindowBalance, findings: tuple[Finding, ...] = (), width_ms: int = MINUTE_MS) -> Balance:
    return Balance(list(windows), list(findings), width_ms)


def full(window_ms: int, **changes: int | bool) -> WindowBalance:
    counts = {"produced": 10, "stored": 10, "loaded": 10, **changes}
    return WindowBalance(window_ms, **counts)  # type: ignore[arg-type]


def states(strip: Strip) -> dict[str, list[str]]:
    return {row.tier: [str(cell.state) for cell in row.cells] for row in strip.rows}


def test_each_tier_has_the_findings_of_its_own() -> None:
    lost = Finding(Kind.LOST, MINUTE_MS, ONE, 1, tier=LOADED, offsets=((17, 1),))
    found = balance_of(full(0), full(MINUTE_MS, loaded=9), full(2 * MINUTE_MS), findings=(lost,))
    strip = strip_of(found, has_table=True)
    assert states(strip) == {
        "produced": ["complete"] * 3,
        "stored": ["complete"] * 3,
        "loaded": ["complete", "wrong", "complete"],
    }
    assert [row.complete_until_ms for row in strip.rows] == [3 * MINUTE_MS, 3 * MINUTE_MS, MINUTE_MS]
    cell = strip.rows[2].cells[1]
    assert (cell.records, dict(cell.wrong), cell.begin_ms, cell.end_ms) == (9, {Kind.LOST: 1}, MINUTE_MS, 2 * MINUTE_MS)
    assert strip.worst is CellState.WRONG


def test_tiers_that_the_audit_did_not_compare_are_absent() -> None:
    assert list(states(strip_of(balance_of(full(0)), has_table=False))) == ["produced", "stored"]
    mirrored = balance_of(full(0, mirrored=10))
    assert list(states(strip_of(mirrored, has_table=True))) == ["produced", "mirrored", "stored", "loaded"]
    without_source = balance_of(full(0, mirrored=10, produced=0))
    assert list(states(strip_of(without_source, has_table=False))) == ["mirrored", "stored"]


def test_states_without_wrong_records() -> None:
    findings = (Finding(Kind.OPEN, 0, ONE, 3), Finding(Kind.AGAIN, MINUTE_MS, ONE, 3))
    windows = (full(0), full(MINUTE_MS), full(2 * MINUTE_MS, is_expired=True), full(3 * MINUTE_MS, produced=0))
    strip = strip_of(balance_of(*windows, findings=findings), has_table=True)
    assert states(strip) == {
        "produced": ["complete", "complete", "complete", "not audited"],
        "stored": ["open", "complete", "expired", "not audited"],
        "loaded": ["complete", "complete", "expired", "complete"],
    }
    assert strip.rows[1].count_of("expired") == 1


def test_watermark_passes_over_expired_windows_at_the_begin() -> None:
    windows = (full(0, is_expired=True), full(MINUTE_MS), full(2 * MINUTE_MS, is_expired=True))
    strip = strip_of(balance_of(*windows), has_table=False)
    assert strip.rows[1].complete_until_ms == 2 * MINUTE_MS


def test_long_topic_has_cells_of_several_windows_with_the_worst_state() -> None:
    windows = [full(number * MINUTE_MS) for number in range(100)]
    lost = Finding(Kind.LOST, 42 * MINUTE_MS, ONE, 2)
    strip = strip_of(balance_of(*windows, findings=(lost,)), has_table=False, cells_max=50)
    assert strip.span_ms == 5 * MINUTE_MS
    stored = strip.rows[1].cells
    assert len(stored) == 20
    assert [cell.begin_ms for cell in stored if cell.state is CellState.WRONG] == [40 * MINUTE_MS]
    assert sum(cell.records for cell in stored) == 1000
    assert len(strip.columns) == 20


def test_range_of_event_time_has_cells_of_single_windows() -> None:
    windows = [full(number * MINUTE_MS) for number in range(100)]
    strip = strip_of(
        balance_of(*windows), has_table=False, begin_ms=40 * MINUTE_MS, end_ms=45 * MINUTE_MS, cells_max=50
    )
    assert [cell.begin_ms for cell in strip.rows[0].cells] == [number * MINUTE_MS for number in range(40, 45)]
    assert strip.rows[0].complete_until_ms == 100 * MINUTE_MS  # the watermark is that of the whole topic


def test_record_with_a_wrong_timestamp_does_not_hide_the_others() -> None:
    windows = [full(0), *(full(20_000 * DAY_MS + number * MINUTE_MS) for number in range(30))]
    strip = strip_of(balance_of(*windows), has_table=False, cells_max=40)
    assert strip.span_ms == MINUTE_MS
    assert len(strip.rows[0].cells) == 31


def test_records_without_a_timestamp_have_a_cell_of_their_own() -> None:
    strip = strip_of(balance_of(full(-1), full(0)), has_table=False)
    assert [(cell.begin_ms, cell.end_ms) for cell in strip.rows[0].cells] == [(-1, 0), (0, MINUTE_MS)]
    only = strip_of(balance_of(full(-1), full(0)), has_table=False, end_ms=0)
    assert [cell.begin_ms for cell in only.rows[0].cells] == [-1]


def test_cells_are_limited_for_any_event_times() -> None:
    windows = [full(number * 10_000 * DAY_MS) for number in range(200)]
    strip = strip_of(balance_of(*windows), has_table=False, cells_max=40)
    assert len(strip.rows[0].cells) <= 41
    odd = [full(number * 90_000) for number in range(500)]
    assert len(strip_of(balance_of(*odd, width_ms=90_000), has_table=False, cells_max=40).rows[0].cells) <= 40


def test_topic_without_records_has_no_cells() -> None:
    strip = strip_of(balance_of(), has_table=True)
    assert strip.columns == []
    assert strip.worst is None


def test_stored_tier_is_not_wrong_because_of_the_table() -> None:
    late = Finding(Kind.LATE, 0, ONE, 1, tier=LOADED)
    assert states(strip_of(balance_of(full(0), findings=(late,)), has_table=True))[STORED] == ["complete"]
