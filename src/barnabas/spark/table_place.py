"""The location and the format of tables: a directory, a catalog of pyiceberg, or an object store. Pure.

    --warehouse DIR                                     the embedded warehouse: a directory with a SQLite catalog
    --catalog NAME                                      a catalog of pyiceberg's configuration, by name
    --catalog-uri http://HOST:PORT --warehouse s3://... a catalog by address
    --warehouse DIR-or-s3://... --table-format delta    Delta tables, which need no catalog

Properties are pyiceberg's (`uri`, `warehouse`, `credential`, `s3.endpoint`, ...). They override the properties of the
same catalog in `.pyiceberg.yaml` and in the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlparse

from barnabas.errors import ConfigurationError

ICEBERG, DELTA = "iceberg", "delta"
TABLE_FORMATS = (ICEBERG, DELTA)
UNNAMED_CATALOG = "barnabas"
NOT_IN_FOLDERS = "#?"
"""Characters that a warehouse path must not contain: pyiceberg and delta-rs parse file paths as URIs."""


@dataclass(frozen=True, slots=True)
class TablePlace:
    """The location and the format of tables. `of` creates a checked one."""

    warehouse: str | None = None
    catalog: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    table_format: str = ICEBERG

    @classmethod
    def of(
        cls,
        warehouse: str | Path | None = None,
        *,
        catalog: str | None = None,
        catalog_properties: Mapping[str, str] | None = None,
        table_format: str = ICEBERG,
    ) -> TablePlace:
        """Return a checked location.

        :raises ConfigurationError: The location is missing, or the arguments contradict each other.
        """
        place = cls(None if warehouse is None else str(warehouse), catalog, catalog_properties or {}, table_format)
        place._check()
        return place

    @property
    def has_catalog(self) -> bool:
        """True if the location has a catalog name or address; otherwise it is a directory."""
        return self.catalog is not None or "uri" in self.properties

    @property
    def is_local(self) -> bool:
        """True if the warehouse is in the local file system."""
        return self.warehouse is not None and urlparse(self.warehouse).scheme in ("", "file")

    def _check(self) -> None:
        if self.table_format not in TABLE_FORMATS:
            known = " or ".join(TABLE_FORMATS)
            raise ConfigurationError(f"table_format (--table-format): unknown value {self.table_format!r}; use {known}")
        if self.table_format == DELTA and (self.has_catalog or self.warehouse is None):
            raise ConfigurationError(
                "Delta tables have no catalog: set only warehouse (--warehouse), to a directory or s3://..."
            )
        if self.is_local and any(sign in str(Path(self.warehouse or "").absolute()) for sign in NOT_IN_FOLDERS):
            raise ConfigurationError(
                f"warehouse (--warehouse): the path {self.warehouse} contains # or ?, which end the path of a URI; use "
                "another directory"
            )
        if self.has_catalog:
            return
        if self.warehouse is None:
            raise ConfigurationError(
                "set the location of the tables: a directory (--warehouse DIR), the name of a catalog in pyiceberg's "
                "configuration (--catalog NAME), or a catalog's address (--catalog-uri http://HOST:PORT)"
            )
        if self.table_format == ICEBERG and not self.is_local:
            raise ConfigurationError(
                f"Iceberg tables in {self.warehouse} need a catalog: set its address (--catalog-uri http://HOST:PORT) "
                "or its name (--catalog NAME); Delta tables need none (--table-format delta)"
            )

    def as_arguments(self) -> dict[str, object]:
        """Return the arguments of `load` and of the functions that read tables."""
        return {
            "warehouse": self.warehouse,
            "catalog": self.catalog,
            "catalog_properties": dict(self.properties),
            "table_format": self.table_format,
        }

    def describe(self) -> str:
        """Return a name of the table for log lines and errors. It contains no secrets: neither the catalog properties
        nor the user in an address."""
        return self.catalog or _without_user(self.properties.get("uri", "")) or self.warehouse or ""


def _without_user(uri: str) -> str:
    """Return a catalog's address without user, password and parameters.

    >>> _without_user("postgresql://me:secret@host:5432/tables?password=secret")
    'postgresql://host:5432/tables'
    """
    scheme, separator, rest = uri.partition("?")[0].rpartition("://")
    # A password may contain unquoted special characters, so everything before the last @ is removed.
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
