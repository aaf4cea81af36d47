"""Catalog servers and tables do not choose classes, local files or the login of the client."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.io import PY_IO_IMPL, S3_RETRY_STRATEGY_IMPL
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import SimpleLocationProvider

from barnabas.spark.client_properties import with_client_properties
from barnabas.spark.embedded_catalog import NAME
from barnabas.spark.errors import WarehouseError
from barnabas.spark.iceberg_batch_table import IcebergBatchTable
from barnabas.spark.table_place import TablePlace
from barnabas.spark.warehouse import Warehouse

LOCATION_PROVIDER = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.mark.parametrize(
    "name",
    [
        *("auth", "ssl", "credential", "token", "scope", "audience", "resource", "oauth2-server-uri"),
        *(PY_IO_IMPL, S3_RETRY_STRATEGY_IMPL, "py-catalog-impl", "any.new-impl", LOCATION_PROVIDER),
        *("rest.sigv4-enabled", "rest.signing-name", "rest.client.socket-timeout-ms"),
        *("client.profile-name", "s3.profile-name", "botocore_session", "s3.role-arn", "client.role-arn"),
        *("hdfs.kerberos_ticket", "gcs.session-kwargs"),
    ],
)
def test_server_does_not_choose_what_only_the_client_chooses(name: str) -> None:
    assert with_client_properties({name: "server", "s3.region": "r"}, {}) == {"s3.region": "r"}
    assert with_client_properties({name: "server"}, {name: "client"}) == {name: "client"}
    assert with_client_properties({}, {name: "client"}) == {name: "client"}


def test_server_chooses_addresses_headers_and_vended_credentials() -> None:
    vended = {
        **{"uri": "http://h", "prefix": "p", "warehouse": "w", "header.X-A": "b", "s3.endpoint": "http://s3"},
        **{"s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.session-token": "c", "s3.region": "r"},
        **{"gcs.oauth2.token": "t", "gcs.service.host": "https://gcs", "gcs.oauth2.token-expires-at": "1"},
        **{"adls.sas-token": "t", "adls.account-name": "lake", "adls.account-host": "lake.example"},
    }
    assert with_client_properties(vended, {"s3.region": "own"}) == vended


@pytest.mark.parametrize(
    ("endpoint", "credential"),
    [
        ("gcs.service.host", "gcs.oauth2.token"),
        ("hf.endpoint", "hf.token"),
        ("adls.account-host", "adls.sas-token"),
        ("adls.blob-storage-authority", "adls.token"),
        ("adls.dfs-storage-scheme", "adls.client-secret"),
        ("adls.connection-string", "adls.sas-token.lake"),
    ],
)
def test_server_does_not_choose_where_a_token_of_the_client_is_sent(endpoint: str, credential: str) -> None:
    client = {credential: "client"}
    assert with_client_properties({endpoint: "server", **client}, client) == client
    assert with_client_properties({endpoint: "server"}, {}) == {}
    given = {endpoint: "client", credential: "client"}
    assert with_client_properties({**given, endpoint: "server"}, given) == given
    assert with_client_properties(given, given) == given
    assert with_client_properties({**given, credential: "server"}, given) == {**given, credential: "server"}


@pytest.mark.parametrize(
    "given",
    [
        {"gcs.service.host": "server", "gcs.oauth2.token": ""},
        {"gcs.service.host": "server", "gcs.oauth2.token-expires-at": "1"},
        {"adls.account-host": "server", "adls.sas-token.other": "t"},
        {"adls.blob-storage-authority": "server", "adls.token": "only for fsspec"},
    ],
)
def test_server_does_not_choose_where_a_token_of_the_machine_is_sent(given: dict[str, str]) -> None:
    _address, *others = given
    assert list(with_client_properties(given, {})) == others


Made = list[str]


@pytest.fixture
def of_others(monkeypatch: pytest.MonkeyPatch) -> Made:
    """A module `of_others`, whose classes add their names to this list when they are called."""
    made: Made = []
    module: Any = ModuleType("of_others")

    class FileIO(PyArrowFileIO):
        def __init__(self, properties: Any) -> None:
            made.append("FileIO")
            super().__init__(properties)

    class Locations(SimpleLocationProvider):
        def __init__(self, *arguments: Any) -> None:
            made.append("Locations")
            super().__init__(*arguments)

    module.FileIO, module.Locations = FileIO, Locations
    monkeypatch.setitem(sys.modules, "of_others", module)
    return made


def embedded(folder: Path) -> TablePlace:
    return TablePlace.of(folder)


def sql(folder: Path) -> TablePlace:
    own = {"type": "sql", "uri": f"sqlite:///{folder}/own.db", "warehouse": f"file://{folder}/own"}
    return TablePlace.of(catalog="own", catalog_properties=own)


places = pytest.mark.parametrize("place", [embedded, sql])
Place = Callable[[Path], TablePlace]


def append(warehouse: Warehouse, number: int) -> None:
    IcebergBatchTable(warehouse, "t", SCHEMA).append([], f"{number:032}", "q", number)


def set_property(place: TablePlace, folder: Path, name: str, value: str) -> None:
    """Set a property of the table with pyiceberg alone."""
    own = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/tables"}
    catalog = load_catalog(place.catalog or NAME, **(place.properties or own))
    with catalog.load_table(("default", "t")).transaction() as transaction:
        transaction.set_properties({name: value})


@places
def test_table_does_not_choose_the_class_for_files(tmp_path: Path, of_others: Made, place: Place) -> None:
    append(Warehouse.open(place(tmp_path)), 0)
    set_property(place(tmp_path), tmp_path, PY_IO_IMPL, "of_others.FileIO")
    of_others.clear()
    warehouse = Warehouse.open(place(tmp_path))
    append(warehouse, 1)
    assert PY_IO_IMPL not in warehouse.current_table("t").location().properties
    assert warehouse.table("t").properties[PY_IO_IMPL] == "of_others.FileIO"
    assert not of_others


def test_user_chooses_the_class_for_files(tmp_path: Path, of_others: Made) -> None:
    given = {**sql(tmp_path).properties, PY_IO_IMPL: "of_others.FileIO"}
    warehouse = Warehouse.open(TablePlace.of(catalog="own", catalog_properties=given))
    append(warehouse, 0)
    assert warehouse.current_table("t").location().properties[PY_IO_IMPL] == "of_others.FileIO"
    assert of_others


@places
def test_table_with_a_class_for_locations_is_only_read(tmp_path: Path, of_others: Made, place: Place) -> None:
    append(Warehouse.open(place(tmp_path)), 0)
    set_property(place(tmp_path), tmp_path, LOCATION_PROVIDER, "of_others.Locations")
    of_others.clear()
    warehouse = Warehouse.open(place(tmp_path))
    with pytest.raises(WarehouseError, match=r"^table t: .*write\.py-location-provider\.impl.*remove it"):
        append(warehouse, 1)
    assert warehouse.current_table("t").table.scan().to_arrow().num_rows == 0
    assert not of_others


@places
def test_class_for_locations_that_is_set_before_a_commit_is_not_imported(
    tmp_path: Path, of_others: Made, place: Place
) -> None:
    warehouse = Warehouse.open(place(tmp_path))
    append(warehouse, 0)
    opened = IcebergBatchTable(warehouse, "t", SCHEMA)
    set_property(place(tmp_path), tmp_path, LOCATION_PROVIDER, "of_others.Locations")
    of_others.clear()
    with pytest.raises(WarehouseError, match=r"write\.py-location-provider\.impl"):
        opened.append([], f"{1:032}", "q", 1)
    assert len(warehouse.table("t").snapshots()) == 1
    assert not of_others
