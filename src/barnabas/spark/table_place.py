"""Where tables are: a folder, a catalog of pyiceberg's, object storage; and in which format. Checked, typed, pure.

    --warehouse DIR                                     the embedded warehouse: a folder, with a SQLite catalog in it
    --catalog NAME                                      a catalog of pyiceberg's configuration, by its name
    --catalog-uri http://HOST:PORT --warehouse s3://... a catalog by its address
    --warehouse DIR-or-s3://... --table-format delta    Delta tables, which need no catalog

Properties are pyiceberg's (`uri`, `warehouse`, `credential`, `s3.endpoint`, ...). They go before those that its file
`.pyiceberg.yaml` and the environment have for the same catalog.
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
"""Tables name their files by URIs, also those in folders, and pyiceberg and delta-rs take them apart as such."""


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where tables are. Make one with `of`, which checks it."""

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
        """Check what was given.

        :raises ConfigurationError: it says of no place where it is, or what is said does not go together.
        """
        place = cls(None if warehouse is None else str(warehouse), catalog, catalog_properties or {}, table_format)
        place._check()
        return place

    @property
    def has_catalog(self) -> bool:
        """Whether a catalog is named, or its address given; else there is a folder."""
        return self.catalog is not None or "uri" in self.properties

    @property
    def is_local(self) -> bool:
        """Whether the warehouse is in the file system of this machine."""
        return self.warehouse is not None and urlparse(self.warehouse).scheme in ("", "file")

    def _check(self) -> None:
        if self.table_format not in TABLE_FORMATS:
            known = " or ".join(TABLE_FORMATS)
            raise ConfigurationError(f"table_format (--table-format): {self.table_format!r} is none: {known}")
        if self.table_format == DELTA and (self.has_catalog or self.warehouse is None):
            raise ConfigurationError(
                "Delta tables have no catalog: say with warehouse (--warehouse) alone where they are, a folder or s3://..."
            )
        if self.is_local and any(sign in str(Path(self.warehouse or "").absolute()) for sign in NOT_IN_FOLDERS):
            raise ConfigurationError(
                f"warehouse (--warehouse): {self.warehouse} has a # or a ? in its path, with which the places of its "
                "files would end; give it another name, or another place"
            )
        if self.has_catalog:
            return
        if self.warehouse is None:
            raise ConfigurationError(
                "say where the tables are: a folder (--warehouse DIR), the name of a catalog in pyiceberg's "
                "configuration (--catalog NAME), or a catalog's address (--catalog-uri http://HOST:PORT)"
            )
        if self.table_format == ICEBERG and not self.is_local:
            raise ConfigurationError(
                f"Iceberg tables in {self.warehouse} need a catalog: give its address (--catalog-uri http://HOST:PORT) "
                "or its name (--catalog NAME); Delta tables need none (--table-format delta)"
            )

    def as_arguments(self) -> dict[str, object]:
        """Return what `load` and the readers of tables take."""
        return {
            "warehouse": self.warehouse,
            "catalog": self.catalog,
            "catalog_properties": dict(self.properties),
            "table_format": self.table_format,
        }

    def describe(self) -> str:
        """Return what to call it in a message, without what may be secret: properties, and users in addresses."""
        return self.catalog or _without_user(self.properties.get("uri", "")) or self.warehouse or ""


def _without_user(uri: str) -> str:
    """Return a catalog's address without user, password and parameters.

    >>> _without_user("postgresql://me:secret@host:5432/tables?password=secret")
    'postgresql://host:5432/tables'
    """
    scheme, separator, rest = uri.partition("?")[0].rpartition("://")
    # A password may have signs in it that nobody has quoted: whatever stands before the last @ is not shown.
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
