"""Catalogs that Spark's settings name: in a session, and in the file that sessions begin with."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.errors import ConfigurationError
from barnabas.spark import spark_catalogs, warehouse
from barnabas.spark.spark_catalogs import parse_settings, place_of, properties_in_spark
from barnabas.spark.warehouse import Warehouse

IN_SPARK = {
    "spark.sql.catalog.prod": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.prod.catalog-impl": "org.apache.iceberg.rest.RESTCatalog",
    "spark.sql.catalog.prod.uri": "http://host:1",
    "spark.sql.catalog.prod.warehouse": "lake",
    "spark.sql.catalog.prod.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    "spark.sql.catalog.prod.s3.endpoint": "http://host:2",
    "spark.sql.catalog.production.uri": "http://other:1",
    "spark.app.name": "x",
}
PROPERTIES = {"type": "rest", "uri": "http://host:1", "warehouse": "lake", "s3.endpoint": "http://host:2"}


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody has named a catalog on this machine."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(spark_catalogs, "is_known_to_pyiceberg", lambda name: name == "known")
    monkeypatch.setattr(warehouse, "is_known_to_pyiceberg", lambda name: name == "known")


def session(settings: dict[str, str]) -> Any:
    return SimpleNamespace(conf=SimpleNamespace(getAll=settings))


def test_a_name_of_three_parts_begins_with_a_catalog_of_the_session() -> None:
    place = place_of("prod.web.clicks", session(IN_SPARK), None, None, None, "iceberg")
    assert (place.catalog, place.properties) == ("prod", PROPERTIES)
    given = place_of("web.clicks", session(IN_SPARK), None, "prod", {"s3.endpoint": "http://mine"}, "iceberg")
    assert given.properties == {**PROPERTIES, "s3.endpoint": "http://mine"}
    assert place_of("prod.web.clicks", session(IN_SPARK), "./w", None, None, "iceberg").catalog is None
    assert place_of("known.web.clicks", session(IN_SPARK), None, None, None, "iceberg").properties == {}
    with pytest.raises(ConfigurationError, match="set the location of the tables"):
        place_of("web.clicks", session(IN_SPARK), None, None, None, "iceberg")


def test_the_file_that_sessions_begin_with_has_catalogs_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "".join(f"{name}  {value}\n" for name, value in IN_SPARK.items())
    (tmp_path / "spark-defaults.conf").write_text(f"# ours\n\n{text}")
    assert place_of("prod.web.clicks", None, None, None, None, "iceberg").properties == PROPERTIES
    asked: dict[str, str] = {}
    monkeypatch.setattr(warehouse, "open_catalog", lambda name, properties: asked.update(properties, name=name))
    Warehouse.open(spark_catalogs.TablePlace.of(catalog="prod"))
    assert asked == {**PROPERTIES, "name": "prod"}


def test_settings_are_read_as_spark_does() -> None:
    text = "spark.a=b\nspark.c = d e\n  spark.f\tg=h\n#spark.i j\nspark.k\n"
    assert parse_settings(text) == {"spark.a": "b", "spark.c": "d e", "spark.f": "g=h", "spark.k": ""}


def test_a_colon_ends_a_name_too() -> None:
    assert parse_settings("spark.a: b:c\nspark.d:e\nspark.f : g\n") == {
        "spark.a": "b:c",
        "spark.d": "e",
        "spark.f": "g",
    }


def test_the_file_of_settings_may_be_of_another_encoding(tmp_path: Path) -> None:
    lines = [f"{name} {value}" for name, value in IN_SPARK.items()]
    (tmp_path / "spark-defaults.conf").write_bytes(b"# caf\xe9\n" + "\n".join(lines).encode())
    assert place_of("prod.web.clicks", None, None, None, None, "iceberg").properties == PROPERTIES


def test_a_file_of_settings_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_arguments: object, **_options: object) -> str:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "spark-defaults.conf").touch()
    monkeypatch.setattr(Path, "read_text", refused)
    with pytest.raises(ConfigurationError, match=r"spark-defaults\.conf cannot be read: .*Permission denied"):
        place_of("prod.web.clicks", None, None, None, None, "iceberg")


def test_no_folder_of_settings_is_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    looked_at = []
    monkeypatch.setattr(Path, "is_file", lambda path: bool(looked_at.append(path)))
    assert (spark_catalogs.settings_of(None), looked_at) == ({}, [])


def test_what_pyiceberg_has_not_is_told() -> None:
    with pytest.raises(ConfigurationError, match="of type 'hadoop', which is not supported"):
        properties_in_spark("p", {"spark.sql.catalog.p": IN_SPARK["spark.sql.catalog.prod"],
                                  "spark.sql.catalog.p.type": "hadoop"})  # fmt: skip
    with pytest.raises(ConfigurationError, match=r"is io\.delta\.Catalog, which is not an Iceberg catalog"):
        properties_in_spark("d", {"spark.sql.catalog.d": "io.delta.Catalog"})
    with pytest.raises(ConfigurationError, match="cannot open the catalog nobody"):
        Warehouse.open(spark_catalogs.TablePlace.of(catalog="nobody"))
