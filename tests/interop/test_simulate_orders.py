"""`barnabas simulate orders` against a broker: the records give the rows of the truth file, after Ctrl-C too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from barnabas import Admin, Consumer, Record, TopicPartition
from barnabas.cli.commands import run

COMMAND = [sys.executable, "-m", "barnabas.cli.main", "simulate", "orders"]
DEADLINE_S = 60


def records_of(bootstrap: str, topic: str) -> list[Record]:
    with Admin(bootstrap_servers=bootstrap) as admin, Consumer(bootstrap_servers=bootstrap) as consumer:
        ends = admin.end_offsets(partitions_of(admin, topic))
        consumer.assign(ends)
        consumer.seek_to_beginning()
        found: list[Record] = []
        deadline_s = time.monotonic() + DEADLINE_S
        while sum(ends.values()) > len(found):
            assert time.monotonic() < deadline_s
            found += consumer.poll()
        return found


def partitions_of(admin: Admin, topic: str) -> list[TopicPartition]:
    found = [each for each in admin.describe_topics() if each.name == topic]
    return [TopicPartition(topic, part.partition) for each in found for part in each.partitions]


def newest_rows(records: list[Record]) -> dict[int, Any]:
    """Return the row of each order's change with the largest log position."""
    newest: dict[int, tuple[int, Any]] = {}
    for record in records:
        if record.value is not None:
            value = json.loads(record.value)
            order_id, position = (value["after"] or value["before"])["id"], value["source"]["lsn"]
            newest[order_id] = max(
                newest.get(order_id, (0, None)), (position, value["after"]), key=lambda pair: pair[0]
            )
    return {order_id: row for order_id, (_, row) in sorted(newest.items()) if row is not None}


def test_spread_and_late_changes_give_the_final_rows(
    bootstrap: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", bootstrap)
    truth = tmp_path / "truth.parquet"
    options = ["--count", "2000", "--orders", "100", "--late", "0.1", "--spread", "--truth", str(truth), "--quiet"]
    assert run(["simulate", "orders", "-t", topic, "-p", "3", *options]) == 0
    records = records_of(bootstrap, topic)
    assert list(newest_rows(records).values()) == pq.read_table(truth).to_pylist()
    assert len({record.partition for record in records if record.key == records[0].key}) == 3


def test_a_stopped_command_writes_the_rows_of_what_it_sent(bootstrap: str, topic: str, tmp_path: Path) -> None:
    truth = tmp_path / "truth.jsonl"
    command = [*COMMAND, "-t", topic, "--rate", "2000", "--late", "0.1", "--repeats", "0.3", "--truth", str(truth)]
    with subprocess.Popen(
        command, env={**os.environ, "BARNABAS_BOOTSTRAP": bootstrap}, stderr=subprocess.PIPE, text=True
    ) as process:
        _wait_for_records(bootstrap, topic)
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 128 + signal.SIGINT
    assert "the table has " in printed
    rows = [json.loads(line) for line in truth.read_text(encoding="utf-8").splitlines()]
    assert rows
    assert rows == list(newest_rows(records_of(bootstrap, topic)).values())


def _wait_for_records(bootstrap: str, topic: str) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    with Admin(bootstrap_servers=bootstrap) as admin:
        while sum(admin.end_offsets(partitions_of(admin, topic)).values()) < 300:
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
