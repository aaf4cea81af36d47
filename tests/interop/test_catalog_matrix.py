"""Loads into catalogs with their storage in S3: vended credentials, Glue, servers of others, Spark's tasks.

    make suites SUITE=catalogs

The servers are moto (S3, STS, Glue), Apache Iceberg's REST server and Nessie, each in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from barnabas import Producer
from barnabas.clock import SYSTEM_CLOCK
from barnabas.spark.errors import WarehouseAccessError
from barnabas.spark.table_formats import format_of
from barnabas.spark.table_place import TablePlace
from barnabas.spark.table_status import table_status
from barnabas.spark.table_store import maintain
from barnabas.testing import BrokerProcess
from tests.support.loads_without_spark import Lake
from tests.support.oauth_catalog import (
    TOKENS,
    OAuthCatalog,
    SqlTables,
    Upstream,
    forwarding_to,
    running_oauth_catalog,
)
from tests.support.object_store import BUCKET, ObjectStore, running_catalog, running_nessie, running_store

pytestmark = pytest.mark.skipif(os.environ.get("CATALOG_SUITE") != "all", reason="make suites SUITE=catalogs")

SECRET = "s3cret-of-loader"
ROW = b'{"a":1}'


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with running_store() as store:
        yield store


@pytest.fixture(params=["sql", "apache"])
def upstream(request: pytest.FixtureRequest, store: ObjectStore, tmp_path: Path) -> Iterator[Upstream]:
    if request.param == "sql":
        yield SqlTables(tmp_path / "behind", f"s3://{BUCKET}/{tmp_path.name}", **store.properties)
        return
    with running_catalog(store, tmp_path) as address:
        yield forwarding_to(address)


def login(server: OAuthCatalog) -> dict[str, Any]:
    given = {"client_id": "loader", "client_secret": SECRET, "token_url": f"{server.address}{TOKENS}"}
    return {"uri": server.address, "auth": {"type": "oauth2", "oauth2": given}}


def lake_of(folder: Path, monkeypatch: pytest.MonkeyPatch, **properties: Any) -> Lake:
    lake = Lake(folder, "iceberg")
    lake.place = TablePlace.of(catalog="prod", catalog_properties=properties)
    lake.stand_in(monkeypatch)
    lake.values = [ROW] * 3
    return lake


def without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take keys of the storage out of the environment."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def check_loads(lake: Lake) -> None:
    """Load twice, maintain the table, and load again."""
    assert lake.load("web.t", bad="web.bad").records == 3
    lake.values += [ROW, b"?"]
    assert lake.load("web.t", bad="web.bad").dead_letter_rows == 1
    done = maintain(format_of(lake.place).maintainer(lake.open(), "web.t", SYSTEM_CLOCK))
    assert done.expired_snapshots == 0
    lake.values += [ROW]
    assert lake.load("web.t", bad="web.bad").records == 1
    assert table_status(lake.open(), "web.t").records == 6


def test_loads_use_credentials_that_the_catalog_vends(
    upstream: Upstream, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_keys(monkeypatch)
    with running_oauth_catalog(OAuthCatalog(upstream, vended=store.properties)) as server:
        lake = lake_of(tmp_path, monkeypatch, **login(server))
        check_loads(lake)
        properties = lake.open().begin("web.t").location().properties
        assert properties["s3.secret-access-key"] == store.properties["s3.secret-access-key"]
        assert SECRET not in repr(properties)


@pytest.mark.parametrize("vends", [False, True])
def test_loads_into_nessie(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vends: bool) -> None:
    without_keys(monkeypatch)
    with running_nessie(store, tmp_path, vends=vends) as address:
        given = {} if vends else store.properties
        lake = lake_of(tmp_path, monkeypatch, uri=address, warehouse="lake", **given)
        check_loads(lake)
        properties = lake.open().begin("web.t").location().properties
        assert (properties["s3.secret-access-key"] == store.properties["s3.secret-access-key"]) is not vends


def test_loads_into_glue(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"access-key-id": "test", "secret-access-key": "test", "region": "us-east-1", "endpoint": store.endpoint}
    glue = {f"glue.{name}": value for name, value in keys.items()}
    check_loads(
        lake_of(tmp_path, monkeypatch, type="glue", warehouse=f"s3://{BUCKET}/glue", **glue, **store.properties)
    )


def test_glue_that_rejects_the_keys_is_told_without_them(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"access-key-id": "AKIAWRONG", "secret-access-key": "wr0ng-secret", "region": "us-east-1"}
    glue = {f"glue.{name}": value for name, value in keys.items()} | {"glue.endpoint": store.endpoint}
    reset = f"{store.endpoint}/moto-api/reset-auth"
    post(reset, b"0")  # from now on moto checks keys
    try:
        lake = lake_of(tmp_path, monkeypatch, type="glue", warehouse=f"s3://{BUCKET}/glue", **glue, **store.properties)
        with pytest.raises(WarehouseAccessError) as raised:
            lake.load("web.t", bad=None)
        assert "wr0ng-secret" not in str(raised.value)
        assert "\n" not in str(raised.value)
    finally:
        post(reset, b"inf")


def post(address: str, body: bytes) -> None:
    with urlopen(Request(address, data=body, method="POST", headers={"Content-Type": "text/plain"}), timeout=30):
        pass


@pytest.mark.parametrize("upstream", ["sql"], indirect=True)
def test_command_loads_with_sparks_tasks_into_the_catalog_of_pyicebergs_file(
    upstream: Upstream, store: ObjectStore, tmp_path: Path
) -> None:
    with (
        running_oauth_catalog(OAuthCatalog(upstream, vended=store.properties)) as server,
        BrokerProcess() as broker,
    ):
        with Producer(broker.bootstrap) as producer:
            for number in range(400_000):
                producer.send("clicks", b'{"a":%d}' % number)
            producer.flush()
        (tmp_path / ".pyiceberg.yaml").write_text(
            f"catalog:\n  prod:\n    uri: {server.address}\n    auth:\n      type: oauth2\n      oauth2:\n"
            f"        client_id: loader\n        client_secret: {SECRET}\n        token_url: {server.address}{TOKENS}\n"
        )
        command = [sys.executable, "-m", "barnabas.cli.main", "load", "clicks", "--catalog", "prod", "--table", "web.c"]
        command += ["--format", "json", "-b", broker.bootstrap, "--json"]
        environment = {**os.environ, "PYICEBERG_HOME": str(tmp_path)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        assert SECRET not in done.stderr
        assert "400000" in json.dumps(json.loads(done.stdout))
