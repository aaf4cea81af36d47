"""Servers that tables in object storage need: S3 (moto's), and REST catalogs (Apache Iceberg's test server, Nessie)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from barnabas.java import java_homes, java_version
from tests.interop.java.maven import copied, jars
from tests.support.ports import free_port
from tests.support.quick_java import java_home_or_skip
from tests.support.reading import wait_until

BUCKET = "lake"
REST_SERVER = ("iceberg-rest-1.10.1", "org.apache.iceberg:iceberg-open-api:1.10.1")
"""All in one jar: the server keeps its tables' names in SQLite, and writes metadata to S3 itself."""
NESSIE = ("nessie-0.108.8", "org.projectnessie.nessie:nessie-quarkus:0.108.8:jar:runner")
NESSIE_JAVA = 21
START_TIMEOUT_S = 120
KEYS = {"access-key-id": "test", "secret-access-key": "test", "region": "us-east-1"}


@dataclass(frozen=True)
class ObjectStore:
    """A bucket."""

    endpoint: str

    @property
    def properties(self) -> dict[str, str]:
        """How it is reached, as pyiceberg names it."""
        return {"s3.endpoint": self.endpoint, **{f"s3.{name}": value for name, value in KEYS.items()}}


@contextmanager
def running_store() -> Iterator[ObjectStore]:
    """Run S3 with an empty bucket; in a process of its own, as some clients let no other thread run while they wait."""
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    boto3 = pytest.importorskip("boto3")
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        store = ObjectStore(f"http://127.0.0.1:{port}")
        _wait_for(server, f"{store.endpoint}/moto-api/", "S3")
        keys = {f"aws_{name.replace('-', '_')}": value for name, value in KEYS.items() if name != "region"}
        boto3.client("s3", endpoint_url=store.endpoint, region_name=KEYS["region"], **keys).create_bucket(Bucket=BUCKET)
        yield store
    finally:
        server.kill()
        server.wait()


@contextmanager
def running_catalog(store: ObjectStore, folder: Path) -> Iterator[str]:
    """Run a REST catalog whose tables are in the bucket; yields its address."""
    java = java_home_or_skip() / "bin" / "java"
    classpath = f"{jars(*REST_SERVER)}/*"
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": KEYS["access-key-id"],
        "AWS_SECRET_ACCESS_KEY": KEYS["secret-access-key"],
        "AWS_REGION": KEYS["region"],
        "CATALOG_WAREHOUSE": f"s3://{BUCKET}/",
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_S3_ENDPOINT": store.endpoint,
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        "CATALOG_REST_PORT": str(port),
    }
    command = [str(java), "-Xmx256m", "-cp", classpath, "org.apache.iceberg.rest.RESTCatalogServer"]
    with (folder / "catalog.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
    try:
        _wait_for(server, f"{address}/v1/config", "the catalog")
        yield address
    finally:
        server.kill()
        server.wait()


@contextmanager
def running_nessie(store: ObjectStore, folder: Path, *, vends: bool) -> Iterator[str]:
    """Run Nessie with a warehouse in the bucket. Yield the address of its REST catalog, for the branch `main`.

    :param vends: Whether it gives clients credentials of the storage, by AssumeRole. If not, they need their own.
    """
    homes = (home for home in java_homes(os.environ) if (java_version(home) or 0) >= NESSIE_JAVA)
    java = next(homes, None) or pytest.skip(f"Nessie needs Java {NESSIE_JAVA}")
    runner = copied(*NESSIE)
    port = free_port()
    options = "nessie.catalog.service.s3.default-options"
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": free_port(),
        "quarkus.otel.sdk.disabled": "true",
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "lake",
        "nessie.catalog.warehouses.lake.location": f"s3://{BUCKET}/nessie",
        f"{options}.endpoint": store.endpoint,
        f"{options}.path-style-access": "true",
        f"{options}.region": KEYS["region"],
        f"{options}.request-signing-enabled": "false",
        f"{options}.access-key": "urn:nessie-secret:quarkus:storage",
        "storage.name": KEYS["access-key-id"],
        "storage.secret": KEYS["secret-access-key"],
    }
    if vends:
        settings |= {
            f"{options}.sts-endpoint": store.endpoint,
            f"{options}.client-iam.enabled": "true",
            f"{options}.client-iam.assume-role": "arn:aws:iam::123456789012:role/loader",
        }
    options_of_java = [f"-D{name}={value}" for name, value in settings.items()]
    command = [f"{java}/bin/java", "-Xmx512m", *options_of_java, "-jar", str(runner)]
    with (folder / "nessie.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    try:
        _wait_for(server, f"http://127.0.0.1:{port}/iceberg/v1/config", "Nessie")
        yield f"http://127.0.0.1:{port}/iceberg/main"
    finally:
        server.kill()
        server.wait()


def _wait_for(server: subprocess.Popen[bytes], page: str, name: str) -> None:
    wait_until(lambda: server.poll() is not None or _answers(page), f"{name} answers", START_TIMEOUT_S)
    assert server.poll() is None, f"{name} has ended"


def _answers(page: str) -> bool:
    try:
        with urlopen(page, timeout=5):
            return True
    except (URLError, OSError):
        return False
