"""`barnabas ship`: at least once, from where the last run stopped."""

from __future__ import annotations

import gzip

import pytest

from barnabas.cli.times import show_time_ms
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ApiError, ErrorCode


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
    cluster.produce_error = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "logs-0")
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
    assert "1 of them have no time in the line" in outcome.err
    assert ship("--event-time", "at").code == 2


def test_file_that_was_written_over_is_shipped_anew_and_said_so(cluster, ship, tmp_path) -> None:
    log = tmp_path / "app.log"
    log.write_text("old\nold\n")
    ship()
    log.write_text("new\n")
    assert "overwritten" in ship().err
    assert cluster.values("logs") == [b"old", b"old", b"new"]


def test_missing_file_is_an_error_before_a_topic_is_made(cluster, ship) -> None:
    outcome = ship()
    assert outcome.code == 1
    assert "app.log: no such file or directory" in outcome.err
    assert cluster.topics() == []


OLD = '1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5\n'


def test_topic_that_ship_creates_keeps_old_lines(cluster, ship, tmp_path) -> None:
    (tmp_path / "app.log").write_text(OLD)
    outcome = ship("--format", "lines:common")
    assert outcome.code == 0
    assert cluster.settings["logs"] == {"retention.ms": "-1"}
    assert "created topic logs with retention.ms=-1" in outcome.err


def test_topic_for_records_of_now_has_the_retention_of_the_brokers(cluster, ship, tmp_path) -> None:
    (tmp_path / "app.log").write_text(OLD)
    ship()
    assert cluster.settings["logs"] == {}


def test_records_older_than_the_retention_of_a_topic_are_counted(cluster, ship, tmp_path) -> None:
    cluster.create("logs")
    now = show_time_ms(SYSTEM_CLOCK.time_ms())
    (tmp_path / "app.log").write_text(f"{OLD}{OLD}{now} young\n")
    outcome = ship("--event-time", "line")
    assert outcome.code == 0
    assert "warning: 2 of 3 records are older than the retention of logs (retention.ms=604800000, 7" in outcome.err
    assert "barnabas config set topic logs retention.ms=-1" in outcome.err


@pytest.mark.parametrize("config", [{"retention.ms": "-1"}, {"retention.ms": "999999999999999"}])
def test_topic_that_keeps_old_records_needs_no_warning(cluster, ship, tmp_path, config: dict[str, str]) -> None:
    cluster.create("logs")
    cluster.settings["logs"] = config
    (tmp_path / "app.log").write_text(OLD)
    assert "warning" not in ship("--format", "lines:common").err


def test_oversized_line_does_not_end_ship(cluster, ship, tmp_path) -> None:
    (tmp_path / "app.log").write_text("first\n" + "x" * 3000 + "\nlast\n")
    outcome = ship("-X", "max.request.size=1000")
    assert outcome.code == 0, outcome.err
    assert cluster.values("logs") == [b"first", b"last"]
    assert f"{tmp_path / 'app.log'}: line 2 at byte 6 has 3,000 bytes" in outcome.err.replace("\n", "")


def test_oversized_line_is_split_on_request(cluster, ship, tmp_path) -> None:
    (tmp_path / "app.log").write_text("first\n" + "x" * 3000 + "\nlast\n")
    ship("-X", "max.request.size=1000", "--oversized", "split")
    assert b"".join(cluster.values("logs")) == b"first" + b"x" * 3000 + b"last"


def test_oversized_line_ends_ship_on_request_behind_the_lines_before_it(cluster, ship, tmp_path) -> None:
    (tmp_path / "app.log").write_text("first\n" + "x" * 3000 + "\nlast\n")
    outcome = ship("-X", "max.request.size=1000", "--oversized", "fail")
    assert outcome.code == 1
    assert "line 2 at byte 6" in outcome.err


def test_record_that_the_broker_finds_too_large_is_named(cluster, ship, tmp_path) -> None:
    (tmp_path / "app.log").write_text("first\nlast\n")
    cluster.produce_error = ApiError(ErrorCode.MESSAGE_TOO_LARGE, "logs-0")
    outcome = ship()
    assert outcome.code == 1
    assert "app.log: lines 1 to 2, bytes 0 to 11" in outcome.err


def test_compressed_file_is_unpacked_whatever_its_name_is(cluster, ship, tmp_path) -> None:
    (tmp_path / "app.log").write_bytes(gzip.compress(b"one\ntwo\n"))
    assert ship().code == 0
    assert cluster.values("logs") == [b"one", b"two"]


def test_damaged_compressed_file_ends_with_exit_code_1(cluster, ship, tmp_path) -> None:
    (tmp_path / "app.log").write_bytes(gzip.compress(b"one\ntwo\n")[:-4])
    outcome = ship()
    assert outcome.code == 1
    assert "app.log: the gzip data are damaged or truncated" in outcome.err
    assert cluster.values("logs") == [b"one", b"two"]


def test_archive_does_not_keep_other_files_from_being_shipped(cluster, ship, tmp_path) -> None:
    (tmp_path / "app.log").write_bytes(b"PK\x03\x04rest")
    (tmp_path / "other.log").write_text("1\n")
    outcome = ship(tmp_path / "other.log")
    assert outcome.code == 1
    assert "app.log: unsupported compression format zip" in outcome.err
    assert cluster.values("logs") == [b"1"]


def test_zone_without_times_in_the_lines_is_refused(cluster, ship, tmp_path) -> None:
    (tmp_path / "app.log").write_text("1\n")
    outcome = ship("--timezone", "Europe/Berlin")
    assert outcome.code == 2
    assert "time zone: the event time is the record's timestamp" in outcome.err


def test_carriage_returns_stay_in_raw_lines_and_end_lines_of_a_format(cluster, ship, tmp_path) -> None:
    (tmp_path / "app.log").write_bytes(b"one\r\n")
    ship()
    with (tmp_path / "app.log").open("ab") as file:
        file.write(b'{"two": 2}\r\n')
    ship("--format", "json")
    assert cluster.values("logs") == [b"one\r", b'{"two": 2}']


def test_unknown_zone_is_refused_before_a_topic_is_created(cluster, ship, tmp_path) -> None:
    (tmp_path / "app.log").write_text(OLD)
    outcome = ship("--event-time", "line", "--timezone", "Mars/Base")
    assert outcome.code == 2
    assert "'Mars/Base' is not in the time zone database" in outcome.err
    assert cluster.topics() == []
