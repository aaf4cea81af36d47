"""A log that another broker has left, with markers of transactions in it: loads pass over them, and repeat nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas import Admin
from barnabas.records import BatchBuilder
from barnabas.records.header import CONTROL_MASK, TRANSACTIONAL_MASK, stamp, write_crc
from barnabas.spark import load, scan_table
from barnabas.spark.table_formats import open_place
from barnabas.spark.table_place import DELTA, ICEBERG, TablePlace
from tests.support.broker_process import BrokerProcess
from tests.support.table_contents import TOPIC, produce


def add_marker(broker: BrokerProcess, folder: Path, offset: int, leader_epoch: int) -> None:
    """Put the end of a transaction behind the last record of the topic, while the broker is away.

    :param leader_epoch: that of the batch before: each start of the broker begins one.
    """
    broker.kill()
    (log,) = folder.rglob(f"{TOPIC}-0/*.log")
    builder = BatchBuilder()
    builder.append(1_400_000_000_000, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00", [])
    marker = bytearray(builder.build())
    stamp(marker, 0, offset, leader_epoch)
    marker[22] |= CONTROL_MASK | TRANSACTIONAL_MASK
    write_crc(marker, 0, len(marker))
    with log.open("ab") as file:
        file.write(marker)
    broker.restart()


@pytest.mark.parametrize("table_format", [ICEBERG, DELTA])
def test_a_log_that_ends_with_a_marker_is_loaded_once(broker: BrokerProcess, tmp_path: Path, table_format: str) -> None:
    if table_format == DELTA:
        pytest.importorskip("deltalake")
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, config={"retention.ms": "-1"})
    place = TablePlace.of(tmp_path / "warehouse", table_format=table_format)
    loaded = []
    for number in range(2):
        produce(broker.bootstrap, number * 3, 3)
        add_marker(broker, tmp_path, 3 + number * 4, number)
        for _ in range(2):
            done = load(TOPIC, bootstrap=broker.bootstrap, format="json", **place.as_arguments()).tables[0]
            loaded.append((done.records, done.snapshot_id is None))
    assert loaded == [(3, False), (0, True)] * 2
    assert open_place(place).begin(TOPIC).ledger().topics[TOPIC].next_offsets == {0: 8}
    rows = scan_table(name=TOPIC, columns=["offset"], **place.as_arguments())
    assert sorted(each for batch in rows for each in batch.column("offset").to_pylist()) == [0, 1, 2, 4, 5, 6]
