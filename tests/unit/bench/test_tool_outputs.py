"""What the peers' tools print, as recorded, and what the bench reads from it."""

from __future__ import annotations

import pytest

from bench.downloads import explain_failure
from bench.drivers import kafka_tools, rabbitmq_perftest
from bench.drivers.job import SAMPLES_MAX, Job, parse_report, thinned
from bench.processes import ClientError

PRODUCER_PERFORMANCE = """\
Warmup first 500000 records. Steady state results will print after the complete test summary.
1 records sent, 1.7 records/sec (0.00 MB/sec), 567.0 ms avg latency, 567.0 ms max latency.
1668469 records sent, 333693.8 records/sec (31.82 MB/sec), 665.3 ms avg latency, 1005.0 ms max latency.
900000 records sent, 900000.0 records/sec (85.83 MB/sec), 354.8 ms avg latency, 728.0 ms max latency.
3000000 records sent, 699626.865672 records/sec (66.72 MB/sec), 354.79 ms avg latency, 728.00 ms max latency, \
388 ms 50th, 639 ms 95th, 690 ms 99th, 721 ms 99.9th.
2500000 steady state records sent, 762660.158633 records/sec (72.73 MB/sec), 417.33 ms avg latency, \
728.00 ms max latency, 407 ms 50th, 647 ms 95th, 694 ms 99th, 721 ms 99.9th.
"""
CONSUMER_PERFORMANCE = """\
SLF4J: Defaulting to no-operation (NOP) logger implementation
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, \
fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-11-21 12:13:52:981, 2026-11-21 12:13:58:079, 286.1265, 56.1252, 3000254, 588515.8886, 3652, 1446, 197.8745, \
2074864.4537
"""
PERFTEST_PRODUCER = """\
id: w1, starting producer #0
id: w1, time 1.000 s, sent: 19465 msg/s
id: w1, time 2.000 s, sent: 20535 msg/s
test stopped (Producer reached message limit)
id: w1, sending rate avg: 22595 msg/s
id: w1, receiving rate avg: 0 msg/s
"""
PERFTEST_BOTH = """\
id: w12, time 1.001 s, sent: 2846 msg/s, received: 1647 msg/s, min/median/75th/95th/99th consumer latency: \
4086/30950/76203/121364/125515 µs
test stopped (Producer reached message limit, Consumer reached message limit)
id: w12, sending rate avg: 11876 msg/s
id: w12, receiving rate avg: 11800 msg/s
id: w12, consumer latency min/median/75th/95th/99th 115/2124/43702/88420/155057 µs
"""


def test_the_steady_state_of_kafkas_producer_is_read() -> None:
    outcome = kafka_tools.parse_produced(PRODUCER_PERFORMANCE)
    assert outcome.records == 2_500_000
    assert outcome.records_per_s == pytest.approx(762_660.158633)
    assert outcome.latency == {"p50_ms": 407.0, "p95_ms": 647.0, "p99_ms": 694.0, "p999_ms": 721.0}


def test_the_progress_of_kafkas_producer_is_read_without_its_first_record() -> None:
    samples = kafka_tools.parse_produced(PRODUCER_PERFORMANCE).samples
    assert [done for _, done in samples] == [1_668_469, 2_568_469]
    assert samples[1][0] == pytest.approx(6.0, abs=0.01)


def test_the_consumers_rate_is_that_of_fetching_not_of_joining_a_group() -> None:
    outcome = kafka_tools.parse_consumed(CONSUMER_PERFORMANCE)
    assert outcome.records == 3_000_254
    assert outcome.records_per_s == pytest.approx(2_074_864.4537)


@pytest.mark.parametrize("parse", [kafka_tools.parse_produced, kafka_tools.parse_consumed, parse_report])
def test_output_without_a_summary_is_an_error(parse: object) -> None:
    assert callable(parse)
    with pytest.raises(ClientError):
        parse("org.apache.kafka.common.errors.TimeoutException: Topic w1 not present\n")


def test_perftests_averages_and_intervals_are_read() -> None:
    outcome = rabbitmq_perftest.parse_report(PERFTEST_PRODUCER, Job("produce", 45_190, 200))
    assert outcome.records_per_s == pytest.approx(22_595)
    assert outcome.samples == ((1.0, 19_465), (2.0, 40_000))


def test_perftests_latency_is_read_in_milliseconds() -> None:
    outcome = rabbitmq_perftest.parse_report(PERFTEST_BOTH, Job("latency", 50_000, rate=10_000))
    assert outcome.records_per_s == pytest.approx(11_800)
    assert outcome.latency == {"p50_ms": 2.124, "p95_ms": 88.42, "p99_ms": 155.057}


def test_perftest_without_averages_is_an_error() -> None:
    with pytest.raises(ClientError, match="no average"):
        rabbitmq_perftest.parse_report("id: w1, starting producer #0\n", Job("produce", 1))


def test_a_report_of_barnabas_perf_is_read() -> None:
    line = (
        'noise\n{"records": 20000, "records_per_s": 10000.0, "cpu_client_s": 1.311, "p50_ms": 2.3, "p90_ms": 3.5,'
        ' "p99_ms": 7.0, "p999_ms": 11.4, "max_ms": 12.8, "histogram": [[1.0, 42], [1.122, 137]],'
        ' "samples": [[-0.998, 1], [0.102, 1152], [0.203, 2176]]}\n'
    )
    outcome = parse_report(line)
    assert (outcome.records, outcome.seconds, outcome.cpu_client_s) == (20_000, 2.0, 1.311)
    assert outcome.latency["p999_ms"] == 11.4
    assert outcome.histogram == ((1.0, 42), (1.122, 137))
    assert outcome.samples == ((0.102, 1152), (0.203, 2176)), "what was before the start does not count"


def test_a_damaged_report_is_an_error_and_no_crash() -> None:
    for line in ('{"records": 1}', '{"records"', '{"records": "x", "records_per_s": 1, "cpu_client_s": 0}'):
        with pytest.raises(ClientError):
            parse_report(line)


def test_long_series_are_thinned_and_keep_their_end() -> None:
    samples = tuple((number / 4, number * 10) for number in range(1, 1_001))
    thin = thinned(samples)
    assert len(thin) <= SAMPLES_MAX
    assert thin[-1][1] > 9_800


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (
            "[ERROR] Failed to execute goal: Could not find artifact org.example:x:jar:4.3.0 in central",
            "Maven does not have org.example:x:jar:4.3.0",
        ),
        (
            "[ERROR] jars: org.example:x:jar:4.3.0 was not found in https://repo during a previous attempt. This",
            "Maven does not have org.example:x:jar:4.3.0",
        ),
        ("E: Unable to locate package activemq\n", "Maven failed: E: Unable to locate package activemq"),
        ("", "Maven failed: no output"),
    ],
)
def test_a_failed_download_is_told_in_a_line(output: str, line: str) -> None:
    assert explain_failure("Maven", output) == line
