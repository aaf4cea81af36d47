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
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io import PY_IO_IMPL

from barnabas.clock import SYSTEM_CLOCK, ManualClock
from barnabas.errors import BarnabasError
from barnabas.spark.errors import (
    CommitUnknownError,
    LoadConflictError,
    MissingPackageError,
    WarehouseAccessError,
    WarehouseError,
    WarehouseUnavailableError,
)
from barnabas.spark.table_formats import format_of, open_place
from barnabas.spark.table_place import TablePlace
from barnabas.spark.table_status import table_status
from barnabas.spark.table_store import maintain
from tests.support.loads_without_spark import Lake
from tests.support.oauth_catalog import TOKEN_SECONDS, TOKENS, OAuthCatalog, SqlTables, running_oauth_catalog

SECRET, WRONG_SECRET = "s3cret-of-loader", "wr0ng-secret"
ROW = b'{"a":1}'


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


def test_server_does_not_choose_the_class_that_reads_files(
    server: OAuthCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.defaults = server.vended = {PY_IO_IMPL: "servers.own.FileIO"}
    lake = lake_of(server, tmp_path, monkeypatch, credential(server))
    assert lake.load(bad=None).records == 3
    lake.values += [ROW]
    assert lake.load(bad=None).records == 1
    assert PY_IO_IMPL not in lake.open().begin("t").location().properties
    of_user = {PY_IO_IMPL: "pyiceberg.io.pyarrow.PyArrowFileIO"}
    lake = lake_of(server, tmp_path, monkeypatch, credential(server) | of_user)
    assert of_user.items() <= lake.open().begin("t").location().properties.items()


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
