"""`barnabas perf` as a user runs it: each subcommand against the real broker, with few records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from barnabas import Admin, Consumer, Producer, TopicPartition
from barnabas.client.range_reader import RangeReader
from barnabas.records import iter_headers

COMMAND = [sys.executable, "-m", "barnabas.cli.main", "perf"]
TIMEOUT_S = 60
FIGURES = {"records", "records_per_s", "mb_per_s", "cpu_client_s", "elapsed_s", "machine", "broker", "client"}

Run = Callable[..., subprocess.CompletedProcess[str]]
Figures = Callable[..., dict[str, Any]]


@pytest.fixture
def environment(bootstrap: str) -> dict[str, str]:
    return {**os.environ, "BARNABAS_BOOTSTRAP": bootstrap}


@pytest.fixture
def run(environment) -> Run:
    """Runs a subcommand to its end; expects the exit code 0 unless told another."""

    def run_command(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S, check=False)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run_command


@pytest.fixture
def figures(run: Run) -> Figures:
    """Runs a subcommand with --json and returns its one line."""

    def run_command(*arguments: object) -> dict[str, Any]:
        done = run(*arguments, "--json")
        assert (done.stdout.count("\n"), done.stderr) == (1, "")
        found: dict[str, Any] = json.loads(done.stdout)
        assert found.keys() >= FIGURES
        assert found["interrupted"] is False
        return found

    return run_command


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as admin:
        yield admin


@pytest.fixture
def full_topic(bootstrap: str, topic: str, admin: Admin) -> str:
    """A topic with 30,000 records of 20 bytes in six partitions."""
    admin.create_topic(topic, partitions=6)
    with Producer(bootstrap) as producer:
        for partition in range(6):
            producer.send_many(topic, [b"x" * 20] * 5_000, partition=partition)
    return topic


def records_in(admin: Admin, topic: str) -> int:
    (found,) = admin.describe_topics([topic])
    return sum(admin.end_offsets((topic, each.partition) for each in found.partitions).values())


def batch_sizes(bootstrap: str, topic: str, partitions: int, admin: Admin) -> list[int]:
    """Return how many records each batch of a topic has, partition by partition."""
    ends = admin.end_offsets((topic, partition) for partition in range(partitions))
    counts = []
    for tp, end in sorted(ends.items()):
        with RangeReader(bootstrap, topic, tp.partition, 0, end) as reader:
            for data in reader:
                counts += [header.record_count for _, header in iter_headers(data, partial_ok=True)]
    return counts


# --- produce ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["send", "many", "arrow"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_produce_sends_as_many_records_as_asked_for(figures: Figures, admin, topic: str, mode: str, acks: str) -> None:
    found = figures("produce", "-t", topic, "-n", 25_003, "--mode", mode, "--acks", acks, "-s", 30, "-p", 3)
    assert (found["records"], found["stored"], found["bytes"]) == (25_003, 25_003, 25_003 * 30)
    assert (found["mode"], found["acks"], found["partitions"], found["topic"]) == (mode, acks, 3, topic)
    assert found["records_per_s"] == pytest.approx(25_003 / found["elapsed_s"], rel=0.01)
    assert found["mb_per_s"] == pytest.approx(found["records_per_s"] * 30 / 1e6, rel=0.01)
    assert records_in(admin, topic) == 25_003


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("how", [("--mode", "send"), ("--batch-records", "100")], ids=["producer", "pipelined"])
def test_compressed_records_can_be_read(figures: Figures, bootstrap, topic: str, compression: str, how) -> None:
    figures("produce", "-t", topic, "-n", 1_000, "-z", compression, "-p", 1, "-s", 40, *how)
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(topic)
        sizes = {len(record.value) for record in islice(consumer, 1_000)}
    assert sizes == {40}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("batch_records", [1, 50])
def test_each_request_has_exactly_so_many_records(
    figures: Figures, bootstrap, admin, topic: str, acks: str, batch_records: int
) -> None:
    how = ("--batch-records", batch_records, "--acks", acks, "--in-flight", 7)
    found = figures("produce", "-t", topic, "-n", 2_010, "-p", 3, *how)
    counts = batch_sizes(bootstrap, topic, 3, admin)
    assert found["stored"] == sum(counts) == 2_010
    assert set(counts) == ({1} if batch_records == 1 else {50, 10})
    assert found["requests_per_s"] == pytest.approx(len(counts) / found["elapsed_s"], rel=0.01)


def test_pipelined_records_are_the_values_and_have_the_time_of_their_sending(
    figures: Figures, bootstrap, topic: str, tmp_path: Path
) -> None:
    values = tmp_path / "values"
    values.write_bytes(b"".join(b"%d\n" % number for number in range(100)))
    before_ms = time.time_ns() // 1_000_000
    figures("produce", "-t", topic, "-n", 300, "-p", 1, "--batch-records", 20, "--value-file", values)
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(topic)
        records = [*islice(consumer, 300)]
    assert [record.value for record in records] == [b"%d" % (number % 100) for number in range(300)]
    assert all(before_ms <= record.timestamp_ms <= time.time_ns() // 1_000_000 for record in records)


def test_new_topic_is_deleted_and_kept_if_asked_for(figures: Figures, admin) -> None:
    found = figures("produce", "-n", 1_000)
    assert found["topic"] not in admin.list_topics()
    found = figures("produce", "-n", 1_000, "--keep", "-p", 2, "-c", "retention.ms=60000")
    assert records_in(admin, found["topic"]) == 1_000
    assert admin.describe_config(found["topic"])["retention.ms"].value == "60000"


def test_run_ends_after_its_seconds(figures: Figures) -> None:
    found = figures("produce", "--seconds", 0.5, "--mode", "many")
    assert found["elapsed_s"] >= 0.5
    assert found["stored"] == found["records"] > 0
    found = figures("requests", "--seconds", 0.5, "--acks", "0")
    assert found["elapsed_s"] >= 0.5


def test_warm_up_is_sent_and_not_counted(figures: Figures, admin, topic: str) -> None:
    for how in (("--mode", "many"), ("--batch-records", 10)):
        before = records_in(admin, topic) if topic in admin.list_topics() else 0
        found = figures("produce", "-t", topic, "-n", 1_000, "--warm-up", 500, *how)
        assert (found["records"], found["stored"]) == (1_000, 1_000)
        assert records_in(admin, topic) - before == 1_500


def test_several_producers_share_the_records(figures: Figures, admin, topic: str) -> None:
    found = figures("produce", "-t", topic, "-n", 10_001, "--producers", 2)
    assert (found["records"], found["stored"], found["producers"]) == (10_001, 10_001, 2)
    assert records_in(admin, topic) == 10_001


def test_requests_are_of_one_record_each(figures: Figures, bootstrap, admin, topic: str) -> None:
    found = figures("requests", "-t", topic, "-n", 1_500, "-p", 2)
    assert (found["workload"], found["records"], found["stored"]) == ("requests", 1_500, 1_500)
    assert found["requests_per_s"] == pytest.approx(found["records_per_s"], rel=0.01)
    assert batch_sizes(bootstrap, topic, 2, admin) == [1] * 1_500


def test_refused_record_is_a_failure_with_the_reason(run: Run, admin, topic: str) -> None:
    admin.create_topic(topic, config={"max.message.bytes": "1000"})
    for how in (("--mode", "send"), ("--batch-records", 1), ("--batch-records", 1, "--producers", 2)):
        done = run("produce", "-t", topic, "-n", 10, "-s", 5_000, *how, code=1)
        assert "the batch has 5070 bytes, more than max.message.bytes=1000" in done.stderr
        assert done.stderr.count("\n") == 1
    assert records_in(admin, topic) == 0


def test_lost_records_are_a_failure(run: Run, admin, topic: str) -> None:
    """Without acknowledgements only the log can tell that nothing arrived."""
    admin.create_topic(topic, config={"max.message.bytes": "1000"})
    done = run("produce", "-t", topic, "-n", 10, "-s", 5_000, "--acks", 0, "--batch-records", 1, code=1)
    assert f"10 of 10 records are not in topic {topic}" in done.stderr or "connection" in done.stderr


# --- consume ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["records", "poll", "arrow"])
def test_consume_reads_the_topic_once(figures: Figures, full_topic: str, mode: str) -> None:
    found = figures("consume", "-t", full_topic, "--mode", mode)
    assert (found["records"], found["bytes"]) == (30_000, 600_000)
    found = figures("consume", "-t", full_topic, "--mode", mode, "-n", 1_234, "--warm-up", 2_000)
    assert found["records"] == 1_234


def test_consumers_share_the_partitions(figures: Figures, run: Run, full_topic: str) -> None:
    found = figures("consume", "-t", full_topic, "--consumers", 3)
    assert (found["records"], found["consumers"]) == (30_000, 3)
    assert figures("consume", "-t", full_topic, "--consumers", 2, "-n", 999)["records"] == 999
    done = run("consume", "-t", full_topic, "--consumers", 7, code=2)
    assert "7 consumers cannot share 6 partitions" in done.stderr


def test_group_goes_on_where_it_stopped(figures: Figures, run: Run, admin, full_topic: str, group: str) -> None:
    assert figures("consume", "-t", full_topic, "-g", group, "-n", 12_000)["records"] == 12_000
    assert figures("consume", "-t", full_topic, "-g", group)["records"] == 18_000
    assert sum(at.offset for at in admin.group_offsets(group).values()) == 30_000
    done = run("consume", "-t", full_topic, "-g", group, code=1)
    assert f"group '{group}' has read all of topic" in done.stderr


def test_members_of_a_group_read_each_record(figures: Figures, admin, full_topic: str, group: str) -> None:
    found = figures("consume", "-t", full_topic, "-g", group, "--consumers", 2)
    assert found["records"] >= 30_000  # at least once, where the group shares anew on the way
    assert sum(at.offset for at in admin.group_offsets(group).values()) == 30_000


def test_fetches_are_as_large_as_asked_for(figures: Figures, full_topic: str) -> None:
    assert figures("consume", "-t", full_topic, "--fetch-bytes", 20_000)["records"] == 30_000


def test_topic_whose_offsets_have_gaps_is_read_to_its_end(figures: Figures, admin, full_topic: str) -> None:
    admin.delete_records({TopicPartition(full_topic, 0): 4_000})
    assert figures("consume", "-t", full_topic)["records"] == 26_000


def test_consume_of_what_is_not_there_says_so(run: Run, admin, topic: str) -> None:
    assert f"no topic '{topic}'" in run("consume", "-t", topic, code=1).stderr
    admin.create_topic(topic)
    assert "no records" in run("consume", "-t", topic, code=1).stderr


# --- both, latency ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [("send", "records"), ("many", "poll"), ("arrow", "arrow")])
def test_both_consume_what_they_produce(figures: Figures, admin, mode: tuple[str, str]) -> None:
    found = figures("both", "-n", 30_000, "--mode", mode[0], "--read-mode", mode[1], "--warm-up", 1_000)
    assert (found["records"], found["produced"]) == (30_000, 30_000)
    assert found["cpu_client_s"] == pytest.approx(found["cpu_producer_s"] + found["cpu_consumer_s"], abs=0.001)
    assert found["records_per_s"] > 0
    assert found["common_s"] <= found["elapsed_s"]
    assert found["topic"] not in admin.list_topics()


def test_both_end_after_their_seconds_and_leave_out_what_was_there(figures: Figures, full_topic: str) -> None:
    found = figures("both", "-t", full_topic, "--seconds", 0.5, "-X", "linger.ms=1", "-X", "fetch.min.bytes=1")
    assert found["records"] == found["produced"] > 0


def test_latency_is_counted_from_the_moment_that_was_intended(figures: Figures, admin) -> None:
    found = figures("latency", "--rate", 500, "--seconds", 1, "--warm-up", 100, "-s", 20)
    assert (found["records"], found["count"], found["warm_up"]) == (500, 500, 100)
    assert 0 < found["p50_ms"] <= found["p90_ms"] <= found["p99_ms"] <= found["p999_ms"] <= found["max_ms"]
    assert sum(count for _, count in found["histogram"]) == 500
    assert found["topic"] not in admin.list_topics()


def test_latency_charges_for_a_broker_that_stands_still(
    make_broker, environment, wait_for_records: Callable[[Any], None]
) -> None:
    """All that was due while it stood is late: the longest wait is about as long as the stop."""
    broker = make_broker()
    command = [*COMMAND, "latency", "--rate", "200", "--seconds", "4", "--warm-up", "0", "--json"]
    began_s = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**environment, "BARNABAS_BOOTSTRAP": broker.bootstrap}
    )
    wait_for_records(broker)
    os.kill(broker.pid, signal.SIGSTOP)
    threading.Timer(1.0, os.kill, (broker.pid, signal.SIGCONT)).start()
    out, _ = process.communicate(timeout=TIMEOUT_S)
    run_ms = 1_000 * (time.monotonic() - began_s)
    found = json.loads(out)
    assert found["count"] == 800
    assert 800 <= found["max_ms"] < run_ms
    assert found["p90_ms"] >= 50


@pytest.fixture
def wait_for_records() -> Callable[[Any], None]:
    def wait_until_there_are_some(broker: Any) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        with Admin(broker.bootstrap) as admin:
            while not any(records_in(admin, topic) for topic in admin.list_topics()):
                assert time.monotonic() < deadline_s
                wait_a_moment()

    return wait_until_there_are_some


def wait_a_moment() -> None:
    time.sleep(0.02)


# --- how runs end early -------------------------------------------------------------------------------------

LONG = {
    "produce": ("produce", "--seconds", 300),
    "pipelined": ("produce", "--batch-records", 5, "--seconds", 300),
    "requests": ("requests", "--seconds", 300, "--acks", "1"),
    "producers": ("produce", "--producers", 2, "--seconds", 300, "--mode", "many"),
    "both": ("both", "--seconds", 300),
    "latency": ("latency", "--seconds", 300, "--rate", 500, "--warm-up", 0),
}


@pytest.mark.parametrize("name", LONG)
def test_interrupt_prints_the_figures_up_to_then_and_deletes_the_topic(
    make_broker, environment, wait_for_records, name: str
) -> None:
    broker = make_broker()
    process = subprocess.Popen(
        [*COMMAND, *map(str, LONG[name]), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, "BARNABAS_BOOTSTRAP": broker.bootstrap},
    )
    try:
        wait_for_records(broker)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert errors.strip() in ("", "interrupted: these are the results up to the interruption")
    found = json.loads(out)
    assert found["interrupted"] is True
    assert found["records"] >= 0
    with Admin(broker.bootstrap) as admin:
        assert admin.list_topics() == []


INTERRUPTED_CALLBACK = """
import os, signal, sys

from barnabas.cli.main import main
from barnabas.laboratory.perf import produce_frames

number = int(sys.argv[1])
sys.argv[:2] = ["barnabas"]
feed = produce_frames.AnswerReader.feed

def interrupted_feed(reader, data):
    produce_frames.AnswerReader.feed = feed
    os.kill(os.getpid(), number)
    feed(reader, data)

produce_frames.AnswerReader.feed = interrupted_feed
sys.exit(main())
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_during_a_callback_of_the_network_ends_a_pipelined_run(
    make_broker, environment, number: signal.Signals, code: int
) -> None:
    broker = make_broker()
    arguments = ["perf", *map(str, LONG["pipelined"]), "--acks", "1"]
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_CALLBACK, str(int(number)), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**environment, "BARNABAS_BOOTSTRAP": broker.bootstrap},
    )
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    with Admin(broker.bootstrap) as admin:
        assert admin.list_topics() == []


@pytest.fixture
def start_both(make_broker, environment, wait_for_records) -> Iterator[Callable[[], tuple[Any, str]]]:
    """Starts a run of several processes; returns it when it has sent records, and where its broker is."""
    started: list[subprocess.Popen[str]] = []

    def start() -> tuple[Any, str]:
        broker = make_broker()
        process = subprocess.Popen(
            [*COMMAND, "both", "--seconds", "300"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, "BARNABAS_BOOTSTRAP": broker.bootstrap},
        )
        started.append(process)
        wait_for_records(broker)
        return process, broker.bootstrap

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def test_terminated_run_leaves_no_topic_and_no_process(start_both) -> None:
    process, bootstrap = start_both()
    process.terminate()
    process.communicate(timeout=TIMEOUT_S)  # the pipes end when the last process of the run has ended
    assert process.returncode == 143
    with Admin(bootstrap) as admin:
        assert admin.list_topics() == []


def test_processes_of_a_killed_run_end_too(start_both) -> None:
    process, _ = start_both()
    process.kill()
    process.communicate(timeout=TIMEOUT_S)


def test_run_fails_when_one_of_its_processes_dies(start_both) -> None:
    process, bootstrap = start_both()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
    workers = [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(int(workers[0]), signal.SIGKILL)
    out, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (1, "")
    assert errors == "barnabas: the process of the consumer ended with exit code -9\n"
    with Admin(bootstrap) as admin:
        assert admin.list_topics() == []


def test_no_broker_is_one_line(environment) -> None:
    command = [*COMMAND, "produce", "--bootstrap", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("barnabas: no broker responds at 127.0.0.1:1")
    assert done.stderr.count("\n") == 1


def test_table_names_the_machine_and_the_broker(run: Run, bootstrap: str) -> None:
    done = run("produce", "-n", 1_000)
    for what in ("records", "rate", "client CPU", "stored", "cores", "Python", "codec", bootstrap):
        assert what in done.stdout
    assert done.stderr == ""
