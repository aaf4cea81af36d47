"""Loads into the tables of a REST catalog that enforces OAuth2: logins, expired tokens, permissions, errors.

The tables are on the local disk; `make suites SUITE=catalogs` also runs the cases with S3, Glue, Spark and Java
(test_catalog_matrix.py).
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io import PY_IO_IMPL, S3_RETRY_STRATEGY_IMPL
from pyiceberg.table import TableProperties

from barnabas.clock import SYSTEM_CLOCK, ManualClock
from barnabas.errors import BarnabasError
from barnabas.spark.change_files import MergeColumns
from barnabas.spark.deleted_keys import BatchDeletedKeys
from barnabas.spark.errors import (
    CommitUnknownError,
    LoadConflictError,
    MissingPackageError,
    WarehouseAccessError,
    WarehouseError,
    WarehouseUnavailableError,
)
from barnabas.spark.iceberg_batch_table import IcebergBatchTable
from barnabas.spark.ledger import LOAD_ID
from barnabas.spark.object_files import file_system_of
from barnabas.spark.table_formats import format_of, open_place
from barnabas.spark.table_place import TablePlace
from barnabas.spark.table_status import table_status
from barnabas.spark.table_store import maintain
from barnabas.spark.warehouse import TableBase, Warehouse
from tests.support.loads_without_spark import Lake
from tests.support.oauth_catalog import TOKEN_SECONDS, TOKENS, OAuthCatalog, SqlTables, Upstream, running_oauth_catalog

SECRET, WRONG_SECRET = "s3cret-of-loader", "wr0ng-secret"
ROW = b'{"a":1}'
LOCATION_PROVIDER = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OAuthCatalog]:
    with running_oauth_catalog(OAuthCatalog(SqlTables(tmp_path / "behind"))) as catalog:
        yield catalog


def credential(server: OAuthCatalog, secret: str = SECRET, client: str = "loader") -> dict[str, str]:
    return {"credential": f"{client}:{secret}", "oauth2-server-uri": f"{server.address}{TOKENS}"}


def oauth2(server: OAuthCatalog, secret: str = SECRET) -> dict[str, Any]:
    given = {"client_id": "loader", "client_secret": secret, "token_url": f"{server.address}{TOKENS}"}
    return {"auth": {"type": "oauth2", "oauth2": given}}


def lake_of(server: OAuthCatalog, folder: Path, monkeypatch: pytest.MonkeyPatch, login: Mapping[str, Any]) -> Lake:
    lake = Lake(folder, "iceberg")
    lake.place = TablePlace.of(catalog="prod", catalog_properties={"uri": server.address, **login})
    lake.stand_in(monkeypatch)
    lake.values = [ROW] * 3
    return lake


@pytest.mark.parametrize("login", [credential, oauth2])
def test_load_logs_in_and_its_tasks_get_no_secret(
    server: OAuthCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login: Callable[[OAuthCatalog], Any]
) -> None:
    lake = lake_of(server, tmp_path, monkeypatch, login(server))
    assert lake.load(bad=None).records == 3
    lake.values += [ROW]
    assert lake.load(bad=None).records == 1
    location = lake.open().begin("t").location()
    assert SECRET.encode() not in pickle.dumps(location)
    assert "token-" not in repr(location)
    assert table_status(lake.open(), "t").records == 4


def test_token_that_expires_during_a_load_is_renewed(
    server: OAuthCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of(server, tmp_path, monkeypatch, credential(server))
    lake.load(bad=None)
    lake.values += [ROW]
    expire = expiring_before_the_commit(server)
    assert lake.load(bad=None, on_progress=expire).records == 1
    assert server.requests.count(f"POST {TOKENS}") > 4
    assert table_status(lake.open(), "t").records == 4


def expiring_before_the_commit(server: OAuthCatalog) -> Callable[[Any], None]:
    def on_progress(progress: Any) -> None:
        if progress.step == "committing":
            assert isinstance(server.clock, ManualClock)
            server.clock.advance(TOKEN_SECONDS)

    return on_progress


def test_given_token_that_expires_fails_the_load_which_a_new_token_continues(
    server: OAuthCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of(server, tmp_path, monkeypatch, {"token": server.token_for("loader")})
    lake.load(bad=None)
    lake.values += [ROW]
    with pytest.raises(CommitUnknownError, match="NotAuthorizedException: the token has expired"):
        lake.load(bad=None, on_progress=expiring_before_the_commit(server))  # it cannot look at the table afterwards
    with pytest.raises(WarehouseAccessError, match=r"cannot open the catalog prod: .*the token has expired"):
        lake.load(bad=None)
    lake = lake_of(server, tmp_path, monkeypatch, {"token": server.token_for("loader")})
    lake.values += [ROW]
    assert lake.load(bad=None).records == 1
    assert table_status(lake.open(), "t").records == 4


def test_client_without_permission_changes_nothing(
    server: OAuthCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of(server, tmp_path, monkeypatch, credential(server))
    lake.load(bad=None)
    reader = lake_of(server, tmp_path, monkeypatch, credential(server, "s3cret-of-reader", "reader"))
    reader.values += [ROW]
    with pytest.raises(WarehouseAccessError, match="the table is unchanged: ForbiddenException: reader has no perm"):
        reader.load(bad=None)
    with pytest.raises(WarehouseAccessError, match="the catalog cannot create the table: ForbiddenException"):
        reader.load("other", bad=None)
    assert table_status(reader.open(), "t").records == 3


def test_client_without_permission_for_namespaces_creates_tables_in_existing_ones(
    server: OAuthCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of(server, tmp_path, monkeypatch, credential(server))
    lake.load(bad=None)
    server.makes_namespaces = False
    assert lake.load("other", bad=None).records == 3
    with pytest.raises(WarehouseError, match=r"nowhere\.t: .*(does not exist|Namespace)"):
        lake.load("nowhere.t", bad=None)


def test_stream_needs_no_permission_for_namespaces_in_existing_ones(server: OAuthCatalog) -> None:
    columns = pa.schema([("id", pa.int64()), ("lsn", pa.int64())])
    place = TablePlace.of(catalog="prod", catalog_properties={"uri": server.address, **credential(server)})
    warehouse = Warehouse.open(place)
    warehouse.catalog.create_namespace("default")
    server.makes_namespaces = False
    open_table = partial(IcebergBatchTable, warehouse)
    open_table("orders", columns).append([], "a" * 32, "query", 0)
    base = open_table("orders", columns)
    merged = MergeColumns(base.whole_schema(), ("id",), "lsn", ())
    before = len(server.requests)
    deleted = BatchDeletedKeys(warehouse, open_table, base, "orders", merged, timedelta(days=7))
    assert deleted.remembered is None
    assert not [request for request in server.requests[before:] if request.startswith("POST")]
    deleted.remember(pa.table({"id": [1], "lsn": [5]}), "b" * 32, "query", 1)
    assert open_table("orders__deleted", columns).exists
    with pytest.raises(WarehouseError, match=r"table nowhere\.orders: the catalog cannot create the table"):
        open_table("nowhere.orders", columns).whole_schema()


def test_catalog_that_takes_no_tables_is_refused_in_one_line(
    server: OAuthCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of(server, tmp_path, monkeypatch, credential(server))
    lake.load(bad=None)
    tables = "/v1/{prefix}/namespaces/{namespace}/tables"
    server.endpoints = (f"GET {tables}", f"GET {tables}/{{table}}")  # as Unity Catalog's own server has
    assert table_status(lake.open(), "t").records == 3
    lake.values += [ROW]
    for table in ("t", "other"):
        with pytest.raises(WarehouseError, match="Server does not support endpoint: POST") as raised:
            lake.load(table, bad=None)
        assert not isinstance(raised.value, WarehouseAccessError)
        assert "\n" not in str(raised.value)


@pytest.fixture
def of_server(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of the classes in a module `of_server`, which the server names."""
    calls: list[str] = []
    module: Any = ModuleType("of_server")

    def called(name: str) -> Callable[..., object]:
        def call(*_arguments: object, **_named: object) -> object:
            calls.append(name)
            raise RuntimeError("called by the server")

        return call

    for name in ("Login", "FileIO", "Retries", "Locations"):
        setattr(module, name, called(name))
    monkeypatch.setitem(sys.modules, "of_server", module)
    return calls


@pytest.mark.parametrize("kind", ["defaults", "overrides", "vended"])
@pytest.mark.parametrize("login", [credential, oauth2])
def test_server_chooses_no_class_that_a_client_or_its_tasks_call(
    server: OAuthCatalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    of_server: list[str],
    login: Callable[[OAuthCatalog], Any],
    kind: str,
) -> None:
    classes = {PY_IO_IMPL: "of_server.FileIO", S3_RETRY_STRATEGY_IMPL: "of_server.Retries", "s3.region": "us-east-1"}
    if kind != "vended":
        classes["auth"] = {"type": "custom", "impl": "of_server.Login", "custom": {"args": ["touch", "x"]}}
    setattr(server, kind, classes)
    lake = lake_of(server, tmp_path, monkeypatch, login(server))
    assert lake.load(bad=None).records == 3
    lake.values += [ROW]
    assert lake.load(bad=None).records == 1
    properties = dict(lake.open().begin("t").location().properties)
    assert properties["s3.region"] == "us-east-1"
    assert not {PY_IO_IMPL, S3_RETRY_STRATEGY_IMPL} & set(properties)
    assert file_system_of(properties, "s3://lake/x")[1] == "lake/x"
    assert not of_server


def test_users_own_classes_are_called(
    server: OAuthCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_server: list[str]
) -> None:
    of_user = {PY_IO_IMPL: "pyiceberg.io.pyarrow.PyArrowFileIO", S3_RETRY_STRATEGY_IMPL: "of_user.Retries"}
    server.overrides = {PY_IO_IMPL: "of_server.FileIO", S3_RETRY_STRATEGY_IMPL: "of_server.Retries"}
    lake = lake_of(server, tmp_path, monkeypatch, credential(server) | of_user)
    lake.load(bad=None)
    assert of_user.items() <= lake.open().begin("t").location().properties.items()
    own_login = {"auth": {"type": "custom", "impl": "of_server.Login"}}
    with pytest.raises(BarnabasError, match="called by the server"):
        open_place(TablePlace.of(catalog="prod", catalog_properties={"uri": server.address, **own_login}))
    assert of_server == ["Login"]


@pytest.mark.parametrize("kind", ["defaults", "overrides"])
@pytest.mark.parametrize("login", [credential, oauth2])
def test_server_chooses_neither_the_login_nor_files_of_the_client(
    server: OAuthCatalog, tmp_path: Path, login: Callable[[OAuthCatalog], Any], kind: str
) -> None:
    with running_oauth_catalog(OAuthCatalog(SqlTables(tmp_path / "other"))) as other:
        elsewhere = {**oauth2(other), **credential(other, client="server"), "token": "server", "scope": "server"}
        files = {"ssl": {"cabundle": "/etc/hostname", "client": {"cert": "/etc/hostname"}}}
        signed = {"rest.sigv4-enabled": "true", "client.profile-name": "server"}
        setattr(server, kind, {**elsewhere, **files, **signed, "rest.client.socket-timeout-ms": "0"})
        given = {"uri": server.address, **login(server)}
        store = open_place(TablePlace.of(catalog="prod", catalog_properties=given))
        assert not store.begin("t").exists
        assert not other.requests


def test_server_chooses_addresses_and_headers(server: OAuthCatalog, tmp_path: Path) -> None:
    with running_oauth_catalog(OAuthCatalog(SqlTables(tmp_path / "other"), tokens=server.tokens)) as other:
        server.overrides = {"uri": other.address, "header.X-Server": "yes"}
        place = TablePlace.of(catalog="prod", catalog_properties={"uri": server.address, **credential(server)})
        store = cast("Warehouse", open_place(place))
        assert not store.begin("t").exists
        assert other.requests
        assert cast("RestCatalog", store.catalog)._session.headers["X-Server"] == "yes"


@pytest.mark.parametrize("answer", [(500, {"error": {"message": "m", "type": "t", "code": 500}}), (200, {})])
def test_upstream_without_settings_is_answered(server: OAuthCatalog, answer: tuple[int, Any]) -> None:
    server.upstream, server.defaults = lambda *_asked: answer, {"a": "b"}
    status, content = server.answer("GET", "/v1/config", {"Authorization": f"Bearer {server.token_for('loader')}"}, b"")
    assert (status, content.get("defaults")) == (answer[0], {"a": "b"} if answer[0] == 200 else None)


def test_table_with_a_class_for_locations_is_only_read(
    server: OAuthCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_server: list[str]
) -> None:
    lake = lake_of(server, tmp_path, monkeypatch, credential(server))
    lake.load(bad=None)
    upstream = server.upstream
    server.upstream = with_table_property(upstream, LOCATION_PROVIDER, "of_server.Locations")
    lake.values += [ROW]
    changes: list[Callable[[], object]] = [
        lambda: lake.load(bad=None),
        lambda: maintain(format_of(lake.place).maintainer(lake.open(), "t", SYSTEM_CLOCK)),
        lambda: lake.load("new", bad=None),
    ]
    for change in changes:
        with pytest.raises(WarehouseError, match=r"table [\w.]+: .*write\.py-location-provider\.impl.*remove it"):
            change()
    assert lake.open().current_table("t").contents().records == 3
    server.upstream = upstream
    begun = cast("TableBase", lake.open().begin("t"))
    server.upstream = with_table_property(upstream, LOCATION_PROVIDER, "of_server.Locations")
    begun.replace([], [], {LOAD_ID: "x"})  # the server adds the property in its answer to the commit
    assert not of_server


def with_table_property(upstream: Upstream, name: str, value: str) -> Upstream:
    """Return an upstream that adds a property to each table."""

    def answer(method: str, target: str, body: bytes) -> tuple[int, Any]:
        status, content = upstream(method, target, body)
        if isinstance(content, dict) and "metadata" in content:
            metadata = content["metadata"]
            content = {**content, "metadata": {**metadata, "properties": {**metadata["properties"], name: value}}}
        return status, content

    return answer


def test_second_of_two_loads_conflicts_and_maintenance_keeps_the_rows(
    server: OAuthCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of(server, tmp_path, monkeypatch, credential(server))
    lake.load(bad=None)

    def load_in_between(progress: Any) -> None:
        if progress.step == "committing" and len(lake.values) == 4:
            lake.values += [ROW]
            lake.load(bad=None)

    lake.values += [ROW]
    with pytest.raises(LoadConflictError):
        lake.load(bad=None, on_progress=load_in_between)
    assert maintain(format_of(lake.place).maintainer(lake.open(), "t", SYSTEM_CLOCK)).expired_snapshots == 0
    assert table_status(lake.open(), "t").records == 5


@pytest.mark.parametrize(
    ("login", "kind", "message"),
    [
        (lambda server: credential(server, WRONG_SECRET), WarehouseAccessError, "invalid_client: unknown client or"),
        (lambda server: oauth2(server, WRONG_SECRET), WarehouseAccessError, "401 Client Error: Unauthorized for url"),
        (lambda _server: {}, WarehouseAccessError, "NotAuthorizedException: the token is not valid"),
        (lambda _server: {"token": WRONG_SECRET}, WarehouseAccessError, "the token is not valid"),
        (
            lambda _server: {"uri": "http://127.0.0.1:1", "token": WRONG_SECRET},
            WarehouseUnavailableError,
            "Connection refused",
        ),
        (
            lambda server: {"type": "hive", **credential(server, WRONG_SECRET)},
            MissingPackageError,
            r"pyiceberg\[hive\]",
        ),
    ],
)
def test_failure_is_one_line_of_the_right_kind_without_a_secret(
    server: OAuthCatalog, login: Callable[[OAuthCatalog], dict[str, Any]], kind: type[Exception], message: str
) -> None:
    place = TablePlace.of(catalog="prod", catalog_properties={"uri": server.address, **login(server)})
    with pytest.raises(kind, match=message) as raised:
        open_place(place)
    told = str(raised.value)
    assert told.startswith("cannot open the catalog prod: ")
    assert "\n" not in told
    assert WRONG_SECRET not in told


@pytest.mark.parametrize(
    ("status", "answer"), [(200, {"access_token": WRONG_SECRET, "expires_in": "soon"}), (200, [WRONG_SECRET])]
)
def test_invalid_answer_of_a_token_server_is_told_without_the_token(
    server: OAuthCatalog, status: int, answer: object
) -> None:
    server.token_answer = (status, answer)
    for login in (credential, oauth2):
        with pytest.raises(BarnabasError, match="cannot open the catalog prod: ") as raised:
            open_place(TablePlace.of(catalog="prod", catalog_properties={"uri": server.address, **login(server)}))
        assert WRONG_SECRET not in str(raised.value)
        assert "\n" not in str(raised.value)


def test_command_reads_the_catalog_from_pyicebergs_file(
    server: OAuthCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake_of(server, tmp_path, monkeypatch, credential(server)).load(bad=None)
    file = tmp_path / ".pyiceberg.yaml"
    file.write_text(f"catalog:\n  prod:\n    uri: {server.address}\n    credential: loader:{SECRET}\n")
    command = [sys.executable, "-m", "barnabas.cli.main", "table", "status", "t", "--catalog", "prod", "--json"]
    environment = {**os.environ, "PYICEBERG_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == 3
    file.write_text(file.read_text().replace(SECRET, WRONG_SECRET))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot open the catalog prod: invalid_client: unknown client or wrong secret" in done.stderr
    assert WRONG_SECRET not in done.stderr
    assert len(done.stderr.splitlines()) == 1
