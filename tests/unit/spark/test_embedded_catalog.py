"""The embedded warehouse's catalog finds tables by itself, and is pyiceberg's catalog for everything else."""

from __future__ import annotations

import copy
import sqlite3
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.typedef import Identifier
from pyiceberg.types import LongType, NestedField

from barnabas.spark.embedded_catalog import EmbeddedCatalog
from barnabas.spark.errors import WarehouseError
from barnabas.spark.warehouse import Warehouse

SCHEMA = Schema(NestedField(1, "offset", LongType()))


def test_table_that_was_found_without_pyicebergs_catalog_can_be_changed_and_is_seen_by_others(tmp_path: Path) -> None:
    writer = Warehouse.open(tmp_path).catalog
    writer.create_namespace("web")
    made = writer.create_table("web.clicks", SCHEMA)
    found = Warehouse.open(tmp_path).table("web.clicks")
    assert (found.name(), found.metadata, found.location()) == (("web", "clicks"), made.metadata, made.location())
    assert found.io.properties["warehouse"] == made.io.properties["warehouse"]
    with found.transaction() as transaction:
        transaction.set_properties({"a": "b"})
    assert found.properties["a"] == "b"
    assert Warehouse.open(tmp_path).table("web.clicks").properties["a"] == "b"
    assert writer.load_table("web.clicks").properties["a"] == "b"
    assert found.refresh().properties["a"] == "b"
    assert copy.copy(found).refresh().properties["a"] == "b"


def test_tables_that_are_not_there_are_none_in_a_new_warehouse_and_in_an_old_one(tmp_path: Path) -> None:
    assert Warehouse.open(tmp_path).find_table("web.clicks") is None
    Warehouse.open(tmp_path).catalog.create_namespace("web")
    assert Warehouse.open(tmp_path).find_table("web.clicks") is None


def test_file_that_is_no_database_is_an_error_of_the_warehouse(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"x" * 5_000)
    with pytest.raises(WarehouseError, match="file is not a database"):
        Warehouse.open(tmp_path).find_table("web.clicks")


def test_catalog_of_an_earlier_pyiceberg_without_types_of_tables_is_read(tmp_path: Path) -> None:
    catalog = Warehouse.open(tmp_path).catalog
    catalog.create_namespace("web")
    catalog.create_table("web.clicks", SCHEMA)
    with sqlite3.connect(tmp_path / "catalog.db") as opened:
        opened.execute("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type")
    assert Warehouse.open(tmp_path).table("web.clicks").schema().column_names == ["offset"]


def test_metadata_file_that_commits_delete_while_it_is_looked_up_is_looked_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Warehouse.open(tmp_path).catalog
    writer.create_namespace("web")
    made = writer.create_table("web.clicks", SCHEMA)
    locate = EmbeddedCatalog._metadata_location

    def locate_and_commit(catalog: EmbeddedCatalog, names: Identifier) -> str | None:
        location = locate(catalog, names)
        if location == made.metadata_location:
            with writer.load_table("web.clicks").transaction() as transaction:
                transaction.set_properties({"a": "b"})
            Path(location.removeprefix("file://")).unlink()
        return location

    monkeypatch.setattr(EmbeddedCatalog, "_metadata_location", locate_and_commit)
    assert Warehouse.open(tmp_path).table("web.clicks").properties["a"] == "b"


def test_metadata_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    writer = Warehouse.open(tmp_path).catalog
    writer.create_namespace("web")
    made = writer.create_table("web.clicks", SCHEMA)
    Path(made.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(WarehouseError, match="the catalog cannot load it"):
        Warehouse.open(tmp_path).table("web.clicks")
