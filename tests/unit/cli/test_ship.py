"""`barnabas ship`: at least once, from where the last run stopped."""

from __future__ import annotations

import pytest

from barnabas.errors import ErrorCode, KafkaError


@pytest.fixture
def ship(run, tmp_path):
    """Ships `app.log` in the test's folder, with its states there as well."""

    def run_ship(*arguments: object):
        return run("ship", "--exit", tmp_path / "app.log", "-t", "logs", "--state", tmp_path / "state", *arguments)

    return run_ship


def test_lines_arrive_in_a_topic_that_is_made_for_them(cluster, ship, tmp_path) -> None:
    (tmp_path / "app.log").write_text("1\n2\nlast")
    outcome = ship("--partitions", 3)
    assert outcome.code == 0, outcome.err
    assert cluster.values("logs") == [b"1", b"2", b"last"]
    assert len(cluster.partitions) == 3
    assert outcome.err == "shipped 3 lines (8 bytes) to logs\n"


def test_next_run_ships_only_what_is_new(cluster, ship, tmp_path) -> None:
    log = tmp_path / "app.log"
    log.write_text("1\n")
    ship()
    log.write_text("1\n2\n")
    assert ship().err == "shipped 1 line (2 bytes) to logs\n"
    assert cluster.values("logs") == [b"1", b"2"]


def test_what_was_not_acknowledged_is_shipped_again(cluster, ship, tmp_path) -> None:
    (tmp_path / "app.log").write_text("1\n2\n")
    cluster.produce_error = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "logs-0")
    assert ship().code == 1
    cluster.produce_error = None
    assert ship().code == 0
    assert cluster.values("logs") == [b"1", b"2"]


def test_keys_and_headers_are_sent(cluster, ship, tmp_path) -> None:
    (tmp_path / "app.log").write_text("1\n")
    ship("-k", "web-1", "-H", "source=app")
    (record,) = next(iter(cluster.partitions.values()))
    assert (record.key, record.headers) == (b"web-1", (("source", b"app"),))


def test_records_have_the_times_of_their_lines(cluster, ship, tmp_path) -> None:
    line = '1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5'
    (tmp_path / "app.log").write_text(f"{line}\nno time\n")
    outcome = ship("--format", "lines:common")
    first, second = next(iter(cluster.partitions.values()))
    assert (first.timestamp_ms, first.value) == (1_431_857_103_000, line.encode())
    assert second.timestamp_ms > first.timestamp_ms
    assert "1 of them say no time" in outcome.err
    assert ship("--event-time", "at").code == 2


def test_file_that_was_written_over_is_shipped_anew_and_said_so(cluster, ship, tmp_path) -> None:
    log = tmp_path / "app.log"
    log.write_text("old\nold\n")
    ship()
    log.write_text("new\n")
    assert "was written over" in ship().err
    assert cluster.values("logs") == [b"old", b"old", b"new"]


def test_missing_file_is_an_error_before_a_topic_is_made(cluster, ship) -> None:
    outcome = ship()
    assert outcome.code == 1
    assert "app.log: no such file or directory" in outcome.err
    assert cluster.topics() == []
