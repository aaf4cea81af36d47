"""Figures of compaction: what is read from the brokers' logs, how a cleaner is watched, how all of it is told."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.records import Compression, read_header, read_records
from bench.compaction.__main__ import kinds, parse
from bench.compaction.accounts import MIB, Account, of_barnabas, of_kafka, together
from bench.compaction.cleaning import Run
from bench.compaction.records import Kind, batches
from bench.compaction.report import Figures, data, lines
from bench.compaction.watch import KAFKAS_CLEANER, OUR_CLEANER, Watch
from bench.stalls.pings import summarise

KAFKA = """\
[kafka-log-cleaner-thread-0] INFO o.a.k.storage.internals.log.LogCleaner$CleanerThread - [kafka-log-cleaner-thread-0]: \

\tLog cleaner thread 0 cleaned log states-0 (dirty section = [0, 16512])
\t1,015.9 MB of log processed in 21.2 seconds (48.0 MB/sec).
\tIndexed 15.9 MB in 0.1 seconds (128.6 Mb/sec, 37.3% of total time)
\tBuffer utilization: 0.0%
\tCleaned 15.9 MB in 0.2 seconds (76.7 Mb/sec, 62.7% of total time)
\tStart size: 1,015.9 MB (16,512 messages)
\tEnd size: 1.9 MB (2,000 messages)
\t87.8% size reduction (87.9% fewer messages)

"""
BARNABAS = """\
2026-11-22 08:40:00,000 INFO barnabas.broker.log_cleaner: states-0: compacted up to offset 16512: \
2000 of 16512 records, 1992294 of 16672358 bytes are left, in 0.40 s
"""


def test_kafkas_account_is_read() -> None:
    (account,) = of_kafka(KAFKA, "states-0")
    assert (account.end_offset, account.records_read, account.records_left) == (16_512, 16_512, 2_000)
    assert (account.bytes_read, account.bytes_left) == (1_015.9 * MIB, 1.9 * MIB)
    assert account.megabytes_per_s == pytest.approx(48.0 * MIB / 1e6), "the rate that it tells, in units of 10^6"


def test_our_account_is_read() -> None:
    (account,) = of_barnabas(BARNABAS, "states-0")
    assert account == Account(16_512, 16_672_358, 1_992_294, 16_512, 2_000, 0.40)
    assert account.megabytes_per_s == pytest.approx(41.680895)


@pytest.mark.parametrize(("read", "text"), [(of_kafka, KAFKA), (of_barnabas, BARNABAS)])
def test_only_whole_accounts_of_the_log_itself_are_read(read: object, text: str) -> None:
    assert callable(read)
    assert [len(read(text * 2, log)) for log in ("states-0", "states-1", "tes-0")] == [2, 0, 0]
    end = text.index("messages)\n\t87") if read is of_kafka else text.index(" s\n")
    assert not [cut for cut in range(end) if read(text[:cut], "states-0")], "it may be read while it is written"


def test_several_cleanings_of_a_log_count_as_one() -> None:
    parts = [Account(10, 1e6, 4e5, 10, 4, 0.5), Account(20, 2e6, 5e5, 20, 5, 0.5)]
    assert together(parts) == Account(20, 3e6, 5e5, 30, 5, 1.0)
    assert together(parts).megabytes_per_s == 3.0


def test_a_cleaning_that_took_no_time_has_no_rate() -> None:
    assert Account(10, 1e6, 4e5, 10, 4, 0.0).megabytes_per_s == 0.0


@contextmanager
def child_at_work(name: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that works for a while, says so, and then waits."""
    busy = "import time; end = time.process_time() + 0.1\nwhile time.process_time() < end: pass\nprint('done')\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", busy, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        yield child
        child.kill()


def test_a_cleaners_process_is_watched_to_its_end_and_no_other() -> None:
    watch = Watch(os.getpid())
    with child_at_work(OUR_CLEANER) as ours, child_at_work("other") as other:
        assert ours.stdout is not None
        assert other.stdout is not None
        assert ours.stdout.readline() == other.stdout.readline() == "done\n"
        watch.look()
        seen_s = watch.cpu_s
        assert 0 < seen_s == cpu_s_of(ours.pid)
        assert watch.peak_mib > 1
        assert not watch.has_ended
        ours.kill()
        os.waitid(os.P_PID, ours.pid, os.WEXITED | os.WNOWAIT)
        watch.look()
        assert watch.has_ended, "though nobody has asked for its exit code"
    watch.look()
    assert watch.cpu_s >= seen_s, "what it used is known when it is gone"


def cpu_s_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_cleaners_thread_counts_from_the_beginning_of_the_watch() -> None:
    named, goes_on = threading.Event(), threading.Event()

    def clean() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(KAFKAS_CLEANER)
        named.set()
        goes_on.wait()

    thread = threading.Thread(target=clean)
    thread.start()
    try:
        assert named.wait(60)
        watch = Watch(os.getpid())
        watch.look()
        assert (watch.cpu_s, watch.peak_mib, watch.has_ended) == (0.0, 0.0, True)
    finally:
        goes_on.set()
        thread.join()


def test_all_brokers_get_the_same_records_of_which_a_tenth_is_left() -> None:
    kind = Kind(116, 100, Compression.LZ4)
    made = list(batches(kind, 1, 5_000))
    assert made == list(batches(kind, 1, 5_000))
    assert sum(read_header(batch).record_count for batch in made) == kind.record_count(1) == 8_600
    records = [record for batch in made for record in read_records(batch, "states", 0)]
    assert {len(record.key or b"") + len(record.value or b"") for record in records} == {116}
    assert len({record.key for record in records}) == pytest.approx(860, rel=0.01)


def run(rate: float, worst_ms: float, peak_mib: float) -> Run:
    account = Account(10, 2e9, 2e8, 5_000, 500, 2e3 / rate)
    return Run(account, rate, 4.0, 5.0, peak_mib, 40.0, summarise([1.0, worst_ms]), summarise([2.0]))


def test_the_table_has_medians_and_how_far_runs_differ_and_compares_with_kafka() -> None:
    ours = Figures("100 B, lz4", "Barnabas", [run(300, 5, 30), run(100, 90, 35), run(200, 4, 31)])
    kafka = Figures("100 B, lz4", "Apache Kafka", [run(50, 100, 0)])
    *_, row, peer = lines([ours, kafka])
    assert row == (
        "| 100 B, lz4 | Barnabas | 200 (100 to 300) | 4.00 | 2.00 | 2.50 | 35 | 40 | 5.0 (4.0 to 90.0) | 5.0 | 2.0"
        " | 500 of 5,000 |"
    )
    assert (
        peer == "| 100 B, lz4 | Apache Kafka | 50 | 1.00 | 2.00 | 2.50 |  | 40 | 100.0 | 100.0 | 2.0 | 500 of 5,000 |"
    )


def test_a_broker_that_cannot_be_had_says_why() -> None:
    kept = [Figures("100 B, lz4", "Barnabas", [run(300, 5, 30)]), Figures("100 B, lz4", "Apache Kafka", [], "no Java")]
    *_, row, peer = lines(kept)
    assert row.startswith("| 100 B, lz4 | Barnabas | 300 |  | 2.00 |")
    assert peer.startswith("| 100 B, lz4 | Apache Kafka | not measured: no Java |")
    assert row.count("|") == peer.count("|")


def test_runs_are_kept_as_data_with_the_brokers_account() -> None:
    (kept,) = data([Figures("100 B, lz4", "Barnabas", [run(300, 5, 30)])])
    assert kept["runs"][0]["account"]["records_left"] == 500
    assert kept["runs"][0]["pings"]["worst_ms"] == 5.0


def test_sizes_come_from_the_scale_unless_they_are_given() -> None:
    assert (parse([]).rounds, parse(["--scale", "quick"]).rounds) == (3, 1)
    assert (parse(["--rounds", "7", "cleaner"]).rounds, parse(["--megabytes", "5"]).megabytes) == (7, 5)
    with pytest.raises(SystemExit):
        parse(["cleaners"])


def test_batches_are_as_large_as_those_of_kafkas_clients() -> None:
    assert {kind.compression for kind in kinds()} == {Compression.NONE, Compression.LZ4}
    for kind in kinds():
        assert 15_000 < kind.record_bytes * kind.batch_records <= 16_384
