"""Commands that look at a table import no more than that takes: imports are most of their time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import barnabas
from barnabas.cli.audit import Audit
from barnabas.cli.connection import Connection
from barnabas.spark import load, table_formats
from barnabas.spark.table_place import TablePlace
from barnabas.spark.table_store import TableStore

pytest.importorskip("deltalake")

PROGRAM = """
import json, sys
from barnabas.cli.main import main
codes = [main(arguments) for arguments in json.loads(sys.argv[1])]
print()
print(json.dumps([codes, sorted(sys.modules)]))
"""
NOT_NEEDED = {
    "iceberg": {"pandas", "pyspark", "polars", "sqlalchemy", "deltalake", "barnabas.spark.iceberg_maintenance"},
    "delta": {"pandas", "pyspark", "polars", "sqlalchemy", "pyiceberg.io.pyarrow", "barnabas.spark.delta_maintenance"},
}


@pytest.mark.parametrize("table_format", sorted(NOT_NEEDED))
def test_status_and_audit_of_a_table_import_neither_spark_nor_pandas(
    bootstrap: str, topic: str, tmp_path: Path, table_format: str
) -> None:
    with barnabas.Producer(bootstrap, audit=True) as producer:
        producer.send(topic, b"1")
    load(topic, bootstrap=bootstrap, warehouse=tmp_path, table_format=table_format, table="t", audit=True)
    place = ["--warehouse", str(tmp_path), "--table-format", table_format]
    commands = [["table", "status", "t", *place], ["audit", topic, *place, "--table", "t", "-b", bootstrap]]
    command = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    codes, modules = json.loads(done.stdout.splitlines()[-1])
    assert codes == [0, 0], done.stdout
    assert NOT_NEEDED[table_format].isdisjoint(modules)


def test_audit_that_looks_twice_opens_the_catalog_once(
    bootstrap: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with barnabas.Producer(bootstrap, audit=True) as producer:
        producer.send(topic, b"1")
    load(topic, bootstrap=bootstrap, warehouse=tmp_path, audit=True)
    opened: list[TablePlace] = []
    open_place = table_formats.open_place

    def counting(place: TablePlace) -> TableStore:
        opened.append(place)
        return open_place(place)

    monkeypatch.setattr(table_formats, "open_place", counting)
    audit = Audit(topic, Connection(bootstrap), TablePlace.of(tmp_path))
    for _look in range(2):
        assert not audit.run()[0].is_wrong
    assert len(opened) == 1
