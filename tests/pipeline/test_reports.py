"""Reports on a made-up click stream, whose truth is known, and on a real access log."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import barnabas.spark
from barnabas.cli.commands import run
from barnabas.errors import ConfigurationError
from barnabas.laboratory.clickstream.click_stream import ClickStream
from barnabas.laboratory.clickstream.site_model import ClickSettings
from barnabas.reports.report import Report
from barnabas.reports.roles import Role, Roles
from barnabas.spark.reports import REPORTS, ReportOptions, item_pairs
from tests.support.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 40_000
SETTINGS = ClickSettings(seed=13, events_per_s=1.5, members=3_000, items=300, bots=5)
LOG = Path(__file__).parents[3] / "shared" / "data" / "apache_access.log"
SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("type", "id", "member", "session", "address", "item", "impression", "follows")]
    + [("time", pa.int64())]
)


class Clicks:
    """The stream: as rows in Python, as a frame, and its truth."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        stream = ClickStream(SETTINGS)
        values = [value for batch in stream.batches(COUNT) for value in batch.column("value").to_pylist()]
        self.rows: list[dict[str, Any]] = [json.loads(value) for value in values]
        self.truth = stream.truth
        table = pa.Table.from_pylist(self.rows, SCHEMA)
        times = table.column("time").cast(pa.timestamp("ms", tz="UTC"))
        pq.write_table(table.append_column("timestamp", times), folder / "clicks.parquet")
        self.frame = spark.read.parquet(str(folder))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["type"] == kind]


@pytest.fixture(scope="module")
def clicks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Clicks:
    """A quiet morning of a small site."""
    return Clicks(spark, tmp_path_factory.mktemp("clicks"))


@pytest.fixture(autouse=True)
def quick(one_shuffle: SparkSession) -> SparkSession:
    """Spark takes longer to begin a task than to do it."""
    return one_shuffle


def report(name: str, frame: DataFrame, named: dict[Role, str] | None = None, **asked: Any) -> Report:
    return REPORTS[name](frame, ReportOptions(Roles(frame.columns, named or {}), **asked))


def test_the_most_popular_are_those_that_were_shown_most(clicks: Clicks) -> None:
    found = report("popularity", clicks.frame.where("type = 'impression'"), top=5)
    shown = clicks.truth.impressions()
    assert {row[1]: row[2] for row in found.rows} == dict(list(shown.items())[:5])
    assert found.figures == {"events": sum(shown.values()), "items": len(shown)}
    visitors = {row["member"] for row in clicks.of("impression") if row["item"] == found.rows[0][1]}
    assert found.rows[0][3] == len(visitors)


def test_what_was_in_fashion_is_found_in_its_hour(clicks: Clicks) -> None:
    found = report("trending", clicks.frame.where("type = 'impression'"), top=10)
    trends = {(trend["item"], trend["hour_ms"]) for trend in clicks.truth.trends()}
    assert trends
    assert trends <= {(row[0], row[1]) for row in found.rows}


def test_the_click_through_rate_of_each_hour_is_exactly_the_true_one(clicks: Clicks) -> None:
    twice = clicks.frame.unionByName(clicks.frame.where("type = 'click'"))  # delivery is at least once
    found = report("ctr", twice)
    truth = [(hour.hour_ms, hour.impressions, hour.clicked) for hour in clicks.truth.hours()]
    assert [tuple(row[:3]) for row in found.rows] == truth
    assert all(row[3] == row[2] / row[1] for row in found.rows)


def test_clicks_that_do_not_say_of_what_are_counted_beside_the_impressions(clicks: Clicks) -> None:
    found = report("ctr", clicks.frame.drop("impression"), window="1 day")
    counts = Counter(row["type"] for row in clicks.rows)
    assert (found.figures["impressions"], found.figures["clicked"]) == (counts["impression"], counts["click"])
    assert "beside the impressions" in found.remarks[0]


def test_all_bots_are_found_and_no_person_is_taken_for_one(clicks: Clicks) -> None:
    found = report("abuse", clicks.frame, threshold=60)
    flagged = {row[0] for row in found.rows if row[4] == "abuse"}
    bots = set(clicks.truth.bots())
    assert len(bots) == SETTINGS.bots
    right = flagged & bots
    assert (len(right) / len(flagged), len(right) / len(bots)) == (1.0, 1.0)  # precision, recall
    assert found.figures["events_above"] == sum(clicks.truth.bots().values())


def test_what_is_seen_together_is_counted_by_session_but_for_too_large_ones(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_pairs, "ITEMS_MAX", 20)
    seen: defaultdict[str, set[str]] = defaultdict(set)
    for row in clicks.rows:
        if "item" in row:
            seen[row["session"]].add(row["item"])
    usual = [items for items in seen.values() if len(items) <= 20]
    pairs = Counter(pair for items in usual for pair in combinations(sorted(items), 2))
    best = sorted(pairs.items(), key=lambda each: (-each[1], each[0]))[:8]
    found = report("co-occurrence", clicks.frame, top=8)
    assert [((row[0], row[1]), row[2]) for row in found.rows] == best
    assert found.figures == {"sessions": len(usual), "sessions_left_out": len(seen) - len(usual)}
    assert found.remarks == (f"{len(seen) - len(usual)} sessions with more than 20 different items are left out",)


def test_recommendations_are_what_truly_belongs_together(clicks: Clicks) -> None:
    group_of = {item: at for at, group in enumerate(clicks.truth.groups()) for item in group}
    found = report("recommendations", clicks.frame.where("address not like '172.16.%'"), top=20)
    pairs = [(row[0], other) for row in found.rows for other in row[2::2] if other is not None]
    related = sum(group_of[one] == group_of[other] for one, other in pairs)
    assert len(pairs) == 60
    assert related / len(pairs) > 0.9


def test_without_sessions_they_are_made_of_what_a_visitor_does_without_a_pause(clicks: Clicks) -> None:
    gap_ms = 180_000
    sessions: dict[str, list[set[str]]] = {}
    latest: dict[str, int] = {}
    for row in sorted(clicks.rows, key=lambda row: row["time"]):
        if "item" not in row:
            continue
        member = row["member"]
        if row["time"] > latest.get(member, 0) + gap_ms:
            sessions.setdefault(member, []).append(set())
        sessions[member][-1].add(row["item"])
        latest[member] = row["time"]
    found = report("co-occurrence", clicks.frame.drop("session"), gap="3 minutes", top=20)
    assert found.figures["sessions"] == sum(map(len, sessions.values()))
    pairs = Counter(pair for own in sessions.values() for items in own for pair in combinations(sorted(items), 2))
    assert {(row[0], row[1]): row[2] for row in found.rows}.items() <= pairs.items()
    assert found.rows[0][2] == max(pairs.values())


def test_a_feed_has_what_those_have_shared_whom_a_member_follows(clicks: Clicks) -> None:
    since: dict[tuple[str, str], int] = {}
    for row in clicks.of("follow"):
        pair = (row["member"], row["follows"])
        since[pair] = min(row["time"], since.get(pair, row["time"]))
    sharers: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    shares = clicks.of("share")
    for (member, followed), at in since.items():
        for share in shares:
            if share["member"] == followed and share["time"] >= at:
                sharers[member, share["item"]].add(followed)
    found = report("newsfeed", clicks.frame, top=1_000)
    assert {(row[0], row[1]): row[2] for row in found.rows} == {key: len(who) for key, who in sharers.items()}
    assert found.figures["members"] == len({member for member, _ in sharers})
    assert sharers


def test_a_column_that_is_not_there_is_told_with_those_that_are(clicks: Clicks) -> None:
    with pytest.raises(ConfigurationError, match=r"--follows-column NAME. The columns are type, id, member"):
        report("newsfeed", clicks.frame.drop("follows"))


@pytest.mark.timeout(900)
def test_the_command_reports_on_loaded_tables(
    broker: BrokerProcess,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setattr(barnabas.spark, "stop_session", lambda _session: None)  # all tests here share one
    place = ("--warehouse", str(tmp_path / "w"))
    truth, picture = tmp_path / "truth.json", tmp_path / "ctr.png"
    start = ("--start", "2026-01-01", "--event-rate", "0.5", "--items", "100", "--seed", "5")
    assert run(["simulate", "clicks", "--count", "3000", *start, "--truth", str(truth), "--quiet"]) == 0
    assert run(["load", "clicks", *place, "--format", "json"]) == 0
    capsys.readouterr()
    assert run(["report", "ctr", "clicks", *place, "--png", str(picture), "--json"]) == 0
    told = json.loads(truth.read_text())["ctr"]
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [[row["from"], row["impressions"], row["clicked"]] for row in rows] == [
        [hour["hour_ms"], hour["impressions"], hour["clicked"]] for hour in told
    ]
    assert picture.stat().st_size > 10_000
    assert run(["report", "popularity", "clicks", *place, "--where", "type = 'click'", "--top", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["rank", "item", "events", "visitors", "share"]
    assert run(["report", "popularity", "clicks", *place, "--where", "typ = 'click'"]) == 2
    assert "--where: " in capsys.readouterr().err
    assert run(["report", "popularity", "nowhere", *place]) == 1
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.timeout(900)
def test_reports_on_a_real_access_log(
    broker: BrokerProcess, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not LOG.exists():
        pytest.skip("there is no apache_access.log in the folder shared/data beside the project")
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", broker.bootstrap)
    state = ("--state", str(tmp_path / "state"))
    assert run(["ship", "--exit", str(LOG), "--topic", "access", "--format", "lines:combined", *state]) == 0
    asked = {"bootstrap": broker.bootstrap, "warehouse": tmp_path / "w", "format": "lines:combined"}
    barnabas.spark.load("access", spark=spark, **asked)
    frame = barnabas.spark.read_table(spark, tmp_path / "w", "access")
    popular = report("popularity", frame, top=3)
    assert [tuple(row[1:3]) for row in popular.rows] == [
        ("/favicon.ico", 807),
        ("/style2.css", 546),
        ("/reset.css", 538),
    ]
    assert report("abuse", frame, threshold=60).figures["addresses"] == 1_753
    assert report("co-occurrence", frame, top=1).rows[0][:2] == ("/reset.css", "/style2.css")
