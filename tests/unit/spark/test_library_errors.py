"""What the libraries of tables end with comes out as one line that says what to do, wherever they are called."""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
from pyiceberg.exceptions import NotInstalledError, ServerError, ServiceUnavailableError
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, StringType
from sqlalchemy.exc import OperationalError

from barnabas.cli.permanent_failures import PermanentFailures
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BarnabasError, ConfigurationError
from barnabas.spark import warehouse as warehouse_module
from barnabas.spark.errors import (
    CommitUnknownError,
    LoadConflictError,
    MissingPackageError,
    UnknownTopicError,
    WarehouseError,
    WarehouseLockedError,
    WarehouseUnavailableError,
)
from barnabas.spark.library_errors import library_errors, reason_of
from barnabas.spark.load_folder import claim_folder
from barnabas.spark.table_formats import format_of, open_place
from barnabas.spark.table_place import TablePlace
from barnabas.spark.table_status import table_status
from barnabas.spark.table_store import Location, maintain
from barnabas.spark.tables import scan_table
from tests.support.loaded_table import LoadedTable
from tests.support.loads_without_spark import Lake


class PanicException(BaseException):
    """As compiled Rust raises it."""


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (KeyError("uri"), WarehouseError, "it: KeyError: 'uri'"),
        (EOFError(), WarehouseError, "it: EOFError"),
        (RuntimeError("first\n  at line 2\n  at line 3"), WarehouseError, "it: first"),
        (NotInstalledError("pip install 'pyiceberg[hive]'"), MissingPackageError, "it: pip install 'pyiceberg[hive]'"),
        (ModuleNotFoundError("No module", name="adlfs"), MissingPackageError, "it: the package adlfs is not installed"),
        (PanicException("index out of bounds"), WarehouseError, "it: index out of bounds"),
        (ValueError("x" * 9999), WarehouseError, "it: " + "x" * 500),
    ],
)
def test_errors_of_libraries_become_one_line(error: BaseException, kind: type[Exception], words: str) -> None:
    with pytest.raises(WarehouseError) as raised, library_errors("it"):
        raise error
    assert type(raised.value) is kind
    assert str(raised.value) == words
    assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "refused"),
        TimeoutError("timed out"),
        socket.gaierror(-2, "Name or service not known"),
        requests.ConnectionError("refused"),
        requests.ReadTimeout("no answer"),
        ServiceUnavailableError("503"),
        ServerError("500"),
        OSError("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7, Could not connect to server"),
        OSError("Generic S3 error: Error performing GET http://s3/b: HTTP error: error sending request"),
        OperationalError("select", {}, Exception("connection to server at 10.0.0.1 failed: Connection refused")),
        OperationalError("select", {}, Exception("connection to server at 10.0.0.1 failed: timeout expired")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_server_without_an_answer_is_a_failure_to_retry(error: Exception) -> None:
    with pytest.raises(WarehouseUnavailableError, match="it: ") as raised, library_errors("it"):
        raise error
    assert raised.value.retriable
    with pytest.raises(WarehouseUnavailableError), library_errors("it", is_set_up=True):
        raise RuntimeError("cannot open") from error


@pytest.mark.parametrize("error", [PermissionError(13, "denied"), OSError("AWS Error ACCESS_DENIED"), ValueError("x")])
def test_refusal_of_a_server_is_no_failure_to_retry(error: Exception) -> None:
    with pytest.raises(WarehouseError) as raised, library_errors("it"):
        raise error
    assert not raised.value.retriable


def test_locked_catalog_is_the_work_of_another_process(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "one.db")) as one, closing(sqlite3.connect(tmp_path / "one.db")) as other:
        other.execute("pragma busy_timeout = 0")
        one.execute("begin exclusive")
        with pytest.raises(WarehouseLockedError) as raised, library_errors("it"):
            other.execute("create table t (x)")
    assert raised.value.retriable


@pytest.mark.parametrize("error", [UnknownTopicError("gone"), AssertionError("a defect"), KeyboardInterrupt()])
def test_own_errors_defects_and_interrupts_pass(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised, library_errors("it"):
        raise error
    assert raised.value is error


def test_wrong_settings_of_a_library_end_rounds_and_its_failures_do_not() -> None:
    with pytest.raises(ConfigurationError, match="it: no such type"), library_errors("it", is_set_up=True):
        raise ValueError("no such type")
    with pytest.raises(WarehouseError, match="it: refused"), library_errors("it", is_set_up=True):
        raise ConnectionError("refused")
    assert PermanentFailures().is_permanent(MissingPackageError("pip install"))
    assert not PermanentFailures().is_permanent(WarehouseError("refused"))


def test_validation_errors_say_what_is_wrong() -> None:
    assert reason_of(ValueError("1 validation error for Table\n  no JSON\n    more")) == (
        "1 validation error for Table: no JSON"
    )


@pytest.mark.parametrize(
    ("properties", "kind", "words"),
    [
        ({"type": "none such", "uri": "x"}, ConfigurationError, "none such"),
        ({"type": "hive", "uri": "thrift://127.0.0.1:1"}, MissingPackageError, r"pip install 'pyiceberg\[hive\]'"),
        ({"py-catalog-impl": "no.such.Catalog", "uri": "x"}, ConfigurationError, "no.such.Catalog"),
        ({"uri": "gopher://x"}, ConfigurationError, "Could not infer the catalog type"),
    ],
)
def test_a_catalog_that_cannot_be_opened_is_refused_in_one_line(
    properties: dict[str, str], kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if properties.get("type") == "hive":  # whether its package is installed here or not
        missing = NotInstalledError("Apache Hive support not installed: pip install 'pyiceberg[hive]'")
        monkeypatch.setattr(warehouse_module, "open_catalog", lambda *_arguments: _raise(missing))
    with pytest.raises(kind, match=words) as raised:
        open_place(TablePlace.of(catalog="h", catalog_properties=properties))
    assert "\n" not in str(raised.value)


def test_a_storage_that_nothing_here_can_write_to_is_refused_before_work() -> None:
    with pytest.raises(WarehouseError, match="cannot write to foo://lake/t: Unrecognized filesystem"):
        claim_folder(Location("foo://lake/t", {}), "one", "t")


def _raise(error: Exception) -> None:
    raise error


@pytest.fixture
def iceberg(tmp_path: Path) -> LoadedTable:
    made = LoadedTable(tmp_path, "iceberg")
    made.commit()
    return made


def test_a_partition_spec_that_loads_cannot_write_is_refused_before_work(iceberg: LoadedTable) -> None:
    with iceberg.table.update_schema() as schema:
        schema.add_column("price", DoubleType())
    with iceberg.table.update_spec() as spec:
        spec.add_field("price", IdentityTransform(), "by_price")
    words = r"is partitioned by identity\(price\) of type double, .*remove_field\('by_price'\)\), or load into another"
    with pytest.raises(WarehouseError, match=f"table default.clicks {words}"):
        iceberg.store.begin("clicks").check_accepts_loads()
    assert table_status(iceberg.store, "clicks").records == 50
    maintain(format_of(iceberg.place).maintainer(iceberg.store, "clicks", SYSTEM_CLOCK))


@pytest.mark.parametrize("changed", ["t", "bad"])
def test_a_load_into_a_changed_table_leaves_all_tables_and_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    lake = Lake(tmp_path, "iceberg")
    lake.stand_in(monkeypatch)
    lake.values = [b'{"price": 1.5}', b"bad"]
    lake.load()
    table = lake.open().current_table(changed).table
    if changed == "bad":
        with table.update_schema() as schema:
            schema.add_column("price", DoubleType())
    with table.update_spec() as spec:
        spec.add_field("price", IdentityTransform(), "by_price")
    lake.values += [b'{"price": 1.5}', b'{"price": 2.5}', b"worse"]
    files = lake.files()
    with pytest.raises(WarehouseError, match=rf"table default\.{changed} is partitioned by identity"):
        lake.load()
    assert lake.files() == files
    with lake.open().current_table(changed).table.update_spec() as spec:
        spec.remove_field("by_price")
    assert lake.load().records == 3


def test_columns_that_others_have_changed_are_refused_before_work(iceberg: LoadedTable) -> None:
    with iceberg.table.update_schema(allow_incompatible_changes=True) as schema:
        schema.add_column("must", StringType(), required=True)
    with pytest.raises(WarehouseError, match=r"has the required column must, .* make it optional"):
        iceberg.store.begin("clicks").check_accepts_loads()
    with iceberg.table.update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("must")
        schema.delete_column("raw_timestamp_ms")
    with iceberg.table.update_schema() as schema:
        schema.add_column("raw_timestamp_ms", StringType())
    with pytest.raises(WarehouseError, match=r"has column raw_timestamp_ms with type string, unlike loads"):
        iceberg.store.begin("clicks").check_accepts_loads()


@pytest.mark.parametrize(
    "properties",
    [
        {"commit.manifest.min-count-to-merge": "many"},
        {"schema.name-mapping.default": "{"},
        {"write.avro.compression-codec": "brotli"},
        {"barnabas.fields": "{"},
    ],
)
def test_properties_that_cannot_be_read_are_refused_and_the_table_stays(
    iceberg: LoadedTable, properties: dict[str, str]
) -> None:
    before = iceberg.table.current_snapshot()
    with iceberg.table.transaction() as transaction:
        transaction.set_properties(properties)
    with pytest.raises(WarehouseError) as raised:
        iceberg.commit()
    assert "\n" not in str(raised.value)
    assert iceberg.table.current_snapshot() == before


def _load(table: LoadedTable) -> None:
    table.commit()


def _status(table: LoadedTable) -> None:
    table_status(table.store, "clicks")


def _maintain(table: LoadedTable) -> None:
    maintain(format_of(table.place).maintainer(table.store, "clicks", SYSTEM_CLOCK))


def _scan(table: LoadedTable) -> None:
    list(scan_table(table.folder, "clicks", table_format=table.place.table_format))


def _rows(table: LoadedTable) -> None:
    list(table.store.current_table("clicks").rows_of("clicks", 0, ["offset"]))


def _ends(table: LoadedTable) -> None:
    table.store.current_table("clicks").next_offsets_of_rows()


def _committed(table: LoadedTable) -> None:
    table.store.committed_loads("clicks", ["other"])


_ALL: list[Callable[[LoadedTable], None]] = [_load, _status, _maintain, _scan, _rows, _ends, _committed]


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
@pytest.mark.parametrize("text", [b"", b"{", None])
def test_damaged_and_missing_files_are_one_line_whatever_is_done(
    tmp_path: Path, table_format: str, text: bytes | None
) -> None:
    if table_format == "delta":
        pytest.importorskip("deltalake")
    patterns = {"iceberg": ["*-m0.avro", "snap-*.avro", "*.metadata.json"], "delta": ["00000000000000000000.json"]}
    table = LoadedTable(tmp_path, table_format)
    table.commit()
    told = []
    for pattern in ["00000.parquet", *patterns[table_format]]:
        for path in table.folder.rglob(pattern):
            path.unlink() if text is None else path.write_bytes(text)
        told += [failure for failure in (_failure(work, table) for work in _ALL[1:]) if failure is not None]
    assert len(told) >= 6
    assert not any("\n" in failure for failure in told)


def _failure(work: Callable[[LoadedTable], None], table: LoadedTable) -> str | None:
    """Return the message of what work ends with, which must be an error of Barnabas'; None where it ends well."""
    try:
        work(table)
    except BarnabasError as error:
        return str(error)
    return None


@pytest.mark.parametrize("where", ["no such thing (", "a = ", "1"])
def test_a_filter_that_cannot_be_read_is_refused_with_its_text(iceberg: LoadedTable, where: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a filter in pyiceberg's syntax"):
        list(scan_table(iceberg.folder, "clicks", where=where))
    with pytest.raises(WarehouseError, match="nope"):
        list(scan_table(iceberg.folder, "clicks", columns=["nope"]))


def test_a_commit_that_ends_with_an_error_of_an_unknown_kind_is_looked_for(
    iceberg: LoadedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ThriftError(Exception):
        """Of a catalog that is no server of requests."""

    catalog = type(iceberg.store.catalog)  # type: ignore[attr-defined]
    commit = catalog.commit_table

    def commit_and_fail(*arguments: Any) -> None:
        commit(*arguments)
        raise ThriftError("connection lost")

    monkeypatch.setattr(catalog, "commit_table", commit_and_fail)
    iceberg.commit()
    monkeypatch.setattr(catalog, "commit_table", lambda *_arguments: _raise(ThriftError("connection lost")))
    with pytest.raises(CommitUnknownError, match="connection lost"):
        iceberg.commit()
    monkeypatch.undo()
    assert iceberg.next_offsets() == {iceberg.offset_after(2)}


def changed_delta(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> LoadedTable:
    """Make a Delta table, and change an action of its first version as another tool would have written it."""
    pytest.importorskip("deltalake")
    table = LoadedTable(tmp_path, "delta")
    table.commit()
    path = table.folder / "default" / "clicks" / "_delta_log" / "00000000000000000000.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        change(action)
    path.write_text("\n".join(map(json.dumps, actions)))
    return table


def column_changed(name: str, **changes: object) -> Callable[[dict[str, Any]], None]:
    def change(action: dict[str, Any]) -> None:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            known = [field for field in schema["fields"] if field["name"] == name]
            if not known:
                known = [{"name": name, "type": "string", "nullable": True, "metadata": {}}]
                schema["fields"] += known
            known[0].update(changes)
            action["metaData"]["schemaString"] = json.dumps(schema)

    return change


def constrained(action: dict[str, Any]) -> None:
    if "metaData" in action:
        action["metaData"]["configuration"] = {"delta.constraints.positive": "offset > 0"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (column_changed("offset", type="string"), r"has column offset with type string, unlike loads"),
        (column_changed("must", nullable=False), "has the column must, which must not be null"),
        (
            column_changed("made", metadata={"delta.generationExpression": "1"}),
            "has a Delta rule for the values of column made",
        ),
        (constrained, "has the constraint positive, which loads do not check: drop it"),
    ],
)
def test_delta_tables_that_others_have_changed_are_refused_before_work(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    table = changed_delta(tmp_path, change)
    with pytest.raises(WarehouseError, match=words):
        table.store.begin("clicks").check_accepts_loads()


def test_a_feature_that_delta_rs_cannot_write_is_no_conflict(tmp_path: Path) -> None:
    def change(action: dict[str, Any]) -> None:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["identityColumns"]}

    table = changed_delta(tmp_path, change)
    for work in (_load, _maintain):
        with pytest.raises(WarehouseError) as raised:
            work(table)
        assert not isinstance(raised.value, LoadConflictError)
        assert "\n" not in str(raised.value)
