"""A catalog or a token server that accepts connections and never answers ends each call, with an error to retry."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from requests.adapters import HTTPAdapter

from barnabas.errors import ConfigurationError
from barnabas.spark.errors import CommitUnknownError, WarehouseUnavailableError
from barnabas.spark.table_formats import open_place
from barnabas.spark.table_place import TablePlace
from barnabas.spark.table_status import table_status
from tests.support.loads_without_spark import Lake
from tests.support.oauth_catalog import OAuthCatalog, SqlTables, running_oauth_catalog

SHORT = {"rest.client.socket-timeout-ms": "200", "hive.client.socket-timeout-ms": "200"}
ROW = b'{"a":1}'
send = HTTPAdapter.send


def send_with_short_limit(adapter: HTTPAdapter, request: Any, *, timeout: Any, **options: Any) -> Any:
    """Send a request that has the default limits, and wait only shortly for its answer."""
    assert timeout == (10, 30)
    return send(adapter, request, timeout=(10, 0.2), **options)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def oauth2(silent: str) -> dict[str, Any]:
    given = {"client_id": "loader", "client_secret": "s3cret", "token_url": f"http://{silent}/tokens"}
    return {"uri": "http://127.0.0.1:1", "auth": {"type": "oauth2", "oauth2": given}}


@pytest.mark.parametrize(
    "properties",
    [
        lambda silent: {"uri": f"http://{silent}"},
        lambda silent: {"type": "REST", "uri": f"http://{silent}", "token": "given"},
        lambda silent: {
            "uri": "http://127.0.0.1:1",
            "credential": "loader:s3cret",
            "oauth2-server-uri": f"http://{silent}/tokens",
        },
        oauth2,
        lambda silent: {
            **{"uri": f"http://{silent}", "rest.sigv4-enabled": "true", "rest.sigv4.max-retries": "0"},
            **{"client.region": "us-east-1", "client.access-key-id": "a", "client.secret-access-key": "b"},
        },
    ],
    ids=["catalog", "catalog with a token", "token server of credential", "token server of oauth2", "signed"],
)
def test_server_that_never_answers_ends_the_call(silent: str, properties: Callable[[str], dict[str, Any]]) -> None:
    place = TablePlace.of(catalog="silent", catalog_properties={**properties(silent), **SHORT})
    with pytest.raises(WarehouseUnavailableError, match="timed out") as raised:
        open_place(place)
    assert "s3cret" not in str(raised.value)
    assert raised.value.retriable


def test_metastore_that_never_answers_ends_the_call(silent: str) -> None:
    pytest.importorskip("thrift")
    store = open_place(TablePlace.of(catalog="h", catalog_properties={"uri": f"thrift://{silent}", **SHORT}))
    with pytest.raises(WarehouseUnavailableError):
        table_status(store, "web.clicks")


@pytest.mark.parametrize("value", ["soon", "0", "-5"])
def test_wrong_time_limit_is_a_wrong_setting(silent: str, value: str) -> None:
    properties = {"uri": f"http://{silent}", "rest.client.socket-timeout-ms": value}
    with pytest.raises(ConfigurationError, match=r"rest\.client\.socket-timeout-ms.*milliseconds"):
        open_place(TablePlace.of(catalog="silent", catalog_properties=properties))


def test_commit_without_an_answer_has_an_unknown_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, is_over = SqlTables(tmp_path / "behind"), threading.Event()
    is_silent = False

    def answer(method: str, target: str, body: bytes) -> tuple[int, Any]:
        if is_silent:
            is_over.wait(60)
        return tables(method, target, body)

    with running_oauth_catalog(OAuthCatalog(answer)) as server:
        lake = Lake(tmp_path, "iceberg")
        login = {"uri": server.address, "token": server.token_for("loader")}
        lake.place = TablePlace.of(catalog="prod", catalog_properties=login)
        lake.stand_in(monkeypatch)
        lake.values = [ROW]
        lake.load(bad=None)

        def fall_silent(progress: Any) -> None:
            nonlocal is_silent
            if progress.step == "committing":
                is_silent = True
                monkeypatch.setattr(HTTPAdapter, "send", send_with_short_limit)

        lake.values += [ROW]
        try:
            with pytest.raises(CommitUnknownError, match="timed out"):
                lake.load(bad=None, on_progress=fall_silent)
        finally:
            is_over.set()
