"""An audit of ten million records with one lost, one duplicate and one late record, which it must find.

    python -m bench.audit_scale               10,000,000 records of 100 B; a minute or two, 3 GB of disk
    python -m bench.audit_scale --records 100000000 --compression lz4
    python -m bench.audit_scale --json FILE   also writes the figures as data

The audit is the command `barnabas audit` in a separate process. The program writes the faults into the log while the
broker is stopped. The exit code is 1 if the audit reports anything other than these faults.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.client.admin import Admin
from barnabas.client.audit.log_counting import LogCountCache
from barnabas.client.audit.producer_audit import LATE_MS
from barnabas.client.audit.topic_audit import audit_topic
from barnabas.client.producer.producer import Producer
from barnabas.clock import SYSTEM_CLOCK
from barnabas.records.header import iter_headers, stamp
from bench.arena import fresh_folder
from bench.broker_process import BARNABAS, MeasuredBroker
from bench.figures import interruptible, parent_of, parser_of, show
from bench.tables import table

TOPIC = "audited"
PARTITIONS = 6
RECORDS = 10_000_000
CALL_RECORDS = 10_000
MORE_RECORDS = 10_000
VALUES = [(b"record %06d " % number) * 8 for number in range(CALL_RECORDS)]
KIB_PER_MIB = 1024
HOUR_MS = 3_600_000

REBUILT = ("*.index", "*.timeindex", "*.snapshot")
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", ".kafka_cleanshutdown")
"""Files to delete, so that the broker rebuilds them from the changed log."""


class Victim(NamedTuple):
    """A record that is alone in its batch, and that gets a fault."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Figure:
    """The figures of one step.

    :param said: the result as text.
    """

    what: str
    records: int
    seconds: float
    cpu_s: float = 0.0
    memory_mib: float = 0.0
    said: str = ""


def produce(bootstrap: str, records: int, compression: str) -> list[Victim]:
    """Produce the records, one of them late. Return two records that are alone in their batches."""
    victims: list[Victim] = []
    settings = {"bootstrap.servers": bootstrap, "compression.type": compression, "client.id": "scale"}
    with Producer(settings, audit=True) as producer:
        for sent in range(0, records, CALL_RECORDS):
            if sent // CALL_RECORDS in (records // CALL_RECORDS // 3, records // CALL_RECORDS // 2):
                producer.flush()
                where = producer.send(TOPIC, b"to be lost or doubled", partition=0).result()
                victims.append(Victim(where.partition, where.offset))
            producer.send_many(TOPIC, VALUES[: records - sent])
        late_ms = SYSTEM_CLOCK.time_ms() - LATE_MS - HOUR_MS
        producer.send(TOPIC, b"late", partition=1, timestamp_ms=late_ms).result()
    return victims


def injure(data: Path, lost: Victim, doubled: Victim) -> None:
    """Remove a record from a partition's log, and duplicate another one. No broker may have the log open."""
    folder = data / f"{TOPIC}-{lost.partition}"
    (path,) = folder.glob("*.log")
    injured = path.with_suffix(".injured")
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as log,
        injured.open("wb") as out,
    ):
        offset = 0
        for position, header in iter_headers(log, partial_ok=True):
            copies = 0 if header.base_offset == lost.offset else 2 if header.base_offset == doubled.offset else 1
            batch = bytearray(log[position : position + header.size])
            for _ in range(copies):
                stamp(batch, 0, offset, header.leader_epoch)
                out.write(batch)
                offset += header.last_offset_delta + 1
    injured.rename(path)
    for stale in (*(each for name in REBUILT for each in folder.glob(name)), *(data / name for name in CHECKPOINTS)):
        stale.unlink(missing_ok=True)


def audit(bootstrap: str, *words: str) -> tuple[Any, Figure]:
    """Run `barnabas audit` in a separate process. Return its output and its figures."""
    command = [sys.executable, *BARNABAS, "audit", *words, TOPIC, "--json", "--bootstrap", bootstrap]
    begun_s = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        output = process.stdout.read()
        _pid, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begun_s
    if process.returncode not in (0, 1):
        raise RuntimeError(f"barnabas audit failed with exit code {process.returncode}")
    cpu_s, what = used.ru_utime + used.ru_stime, " ".join(["barnabas audit", *words])
    return json.loads(output), Figure(what, 0, seconds, cpu_s, used.ru_maxrss / KIB_PER_MIB)


def summary(found: dict[str, Any]) -> str:
    """Return a text with the number of records with each kind of fault.

    >>> summary({"windows": [{"stored": 5, "lost": 1, "doubled": 0, "late": 0}, {"stored": 7, "late": 2, "lost": 1}]})
    'lost 2, late 2'
    >>> summary({"windows": []})
    'nothing is wrong'
    """
    kinds = ("lost", "doubled", "exchanged", "extra", "open", "late")
    counts = {kind: sum(window.get(kind, 0) for window in found["windows"]) for kind in kinds}
    return ", ".join(f"{kind} {count}" for kind, count in counts.items() if count) or "nothing is wrong"


def measure(folder: Path, records: int, compression: str) -> Iterator[Figure]:
    """Run all steps, and yield the figures of each.

    :raises RuntimeError: if the audit does not report exactly the faults.
    """
    whole = records + 3
    with MeasuredBroker(folder) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS, config={"segment.bytes": str(2**31 - 1)})
        begun_s = time.perf_counter()
        lost, doubled = produce(broker.bootstrap, records, compression)
        yield Figure("produce them, audited", whole, time.perf_counter() - begun_s)
        yield _expect("late 1", whole, audit(broker.bootstrap))
        yield from _watch(broker.bootstrap, whole)
    injure(folder, lost, doubled)
    whole += MORE_RECORDS
    with MeasuredBroker(folder) as broker:
        yield _expect("lost 1, doubled 1, late 1", whole, audit(broker.bootstrap))
        answer, figure = audit(broker.bootstrap, "why")
        named = {(each["kind"], each["partition"], each["records"], each["offset"]) for each in answer}
        # The copy takes the position of the lost record, so the log has one record fewer before the copy.
        if named != {("lost", 0, 1, None), ("doubled", 0, 1, doubled.offset)}:
            raise RuntimeError(f"the audit does not report exactly the lost and the duplicate record: {answer}")
        yield Figure(figure.what, whole, figure.seconds, figure.cpu_s, figure.memory_mib, "both are named")


def _watch(bootstrap: str, whole: int) -> Iterator[Figure]:
    """Measure `--watch`: two consecutive audits, with new records between them."""
    memory = LogCountCache()
    with Admin(bootstrap) as admin:
        audit_topic(bootstrap, admin, TOPIC, memory=memory)
        with Producer(bootstrap, audit=True) as producer:
            producer.send_many(TOPIC, VALUES[:MORE_RECORDS])
        begun_s, cpu_s = time.perf_counter(), time.process_time()
        found = audit_topic(bootstrap, admin, TOPIC, memory=memory)
        seconds, cpu_s = time.perf_counter() - begun_s, time.process_time() - cpu_s
    if found.is_wrong or sum(window.stored for window in found.windows) != whole + MORE_RECORDS:
        raise RuntimeError("the second audit does not report that all records are stored")
    yield Figure(f"the next audit of --watch, {MORE_RECORDS:,} later", whole + MORE_RECORDS, seconds, cpu_s)


def _expect(expected: str, whole: int, run: tuple[Any, Figure]) -> Figure:
    found, figure = run
    said = summary(found)
    if said != expected or sum(window["stored"] for window in found["windows"]) != whole:
        raise RuntimeError(f"the audit reports: {said}; expected: {expected}")
    return Figure(figure.what, whole, figure.seconds, figure.cpu_s, figure.memory_mib, said)


def table_lines(figures: Sequence[Figure]) -> list[str]:
    header = ["what", "records", "s", "records/s", "CPU s", "MiB", "says"]
    rows = [
        [
            each.what,
            f"{each.records:,}",
            f"{each.seconds:.2f}",
            f"{each.records / each.seconds:,.0f}",
            f"{each.cpu_s:.2f}" if each.cpu_s else "",
            f"{each.memory_mib:.0f}" if each.memory_mib else "",
            each.said,
        ]
        for each in figures
    ]
    return list(table(header, rows, left=1))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure. Return the exit code."""
    parser = parser_of("bench.audit_scale", __doc__)
    parser.add_argument("--records", type=int, default=RECORDS, help=f"number of records [{RECORDS}]")
    parser.add_argument("--compression", default="none", help="compression of the producer's batches [none]")
    asked = parser.parse_args(arguments)
    parent = parent_of(asked)
    figures: list[Figure] = []
    code = 0
    with interruptible() as interrupted, fresh_folder(parent) as folder:
        try:
            for figure in measure(folder, asked.records, asked.compression):
                figures.append(figure)
                sys.stderr.write(f"{figure}\n")
        except RuntimeError as error:
            sys.stderr.write(f"{error}\n")
            code = 1
    show(asked, "bench.audit_scale", table_lines(figures), figures)
    return interrupted.exit_code or code


if __name__ == "__main__":
    sys.exit(main())
