"""What is said of where tables are: checked before anything is opened."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.errors import ConfigurationError
from barnabas.spark.table_place import TablePlace


@pytest.mark.parametrize(
    ("warehouse", "given", "told"),
    [
        (None, {}, "set the location of the tables: .*--warehouse.*--catalog NAME.*--catalog-uri"),
        ("s3://lake/t", {}, r"Iceberg tables in s3://lake/t need a catalog: .*--catalog-uri"),
        ("./w#1", {}, r"the path \./w#1 contains # or \?"),
        ("/data/what?/w", {"table_format": "delta"}, r"contains # or \?"),
        ("./w", {"table_format": "hudi"}, r"--table-format\): unknown value 'hudi'; use iceberg"),
    ],
)
def test_what_does_not_go_together_is_told(warehouse: str | None, given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        TablePlace.of(warehouse, **given)


def test_a_catalog_has_a_name_or_an_address_and_tells_no_secret() -> None:
    assert not TablePlace.of("./w").has_catalog
    assert TablePlace.of(catalog="prod").has_catalog
    place = TablePlace.of("s3://lake", catalog_properties={"uri": "http://host:1", "s3.secret-access-key": "hidden"})
    assert place.has_catalog
    assert place.describe() == "http://host:1"
    of_user = TablePlace.of(catalog_properties={"uri": "postgresql://me:hid/den@host:1/tables?password=hidden"})
    assert of_user.describe() == "postgresql://host:1/tables"
    assert TablePlace.of(**place.as_arguments()) == place  # type: ignore[arg-type]
