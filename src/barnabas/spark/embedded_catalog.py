"""The catalog of the embedded warehouse: a SQLite file with the metadata location of each table.

pyiceberg's SQL catalog imports SQLAlchemy, which takes longer than to read a small table. So this class looks up tables
by itself, and opens pyiceberg's catalog for all other calls. Once that catalog is open, it looks up the tables, too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from barnabas.spark.client_properties import with_client_properties

NAME = "barnabas"
READS_MAX = 5
"""The number of attempts to read the metadata file of a table that others change."""
_QUERY = (
    "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? "
    "AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
)


class EmbeddedCatalog:
    """A proxy of pyiceberg's SQL catalog, which is opened on first use. Not thread-safe.

    :param file: The SQLite file.
    :param properties: The properties of pyiceberg's catalog.
    :param open_catalog: Opens pyiceberg's catalog.
    """

    def __init__(self, file: Path, properties: dict[str, str], open_catalog: Callable[[], Catalog]) -> None:
        self._file = file
        self._properties = properties
        self._open_catalog = open_catalog
        self._whole: Catalog | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python looks up special methods, for example in `copy`
            raise AttributeError(name)
        return getattr(self.opened(), name)

    def opened(self) -> Catalog:
        """Return pyiceberg's catalog, and open it at the first call. Afterwards it looks up all tables."""
        if self._whole is None:
            self._whole = self._open_catalog()
        return self._whole

    def load_table(self, identifier: str | Identifier) -> Table:
        """Return the current version of a table.

        :raises NoSuchTableError: The table does not exist.
        """
        if self._whole is not None:
            return self._whole.load_table(identifier)
        names = Catalog.identifier_to_tuple(identifier)
        for is_last in (*[False] * (READS_MAX - 1), True):
            try:
                location = self._metadata_location(names)
            except sqlite3.Error:  # a missing file or another version: pyiceberg creates the file, or reports the error
                return self.opened().load_table(identifier)
            try:
                return self._table(names, location)
            except FileNotFoundError:  # later commits may have deleted the file meanwhile
                if is_last or self._metadata_location(names) == location:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _table(self, names: Identifier, location: str | None) -> Table:
        if location is None:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(names)}")
        metadata = FromInputFile.table_metadata(load_file_io(self._properties, location).new_input(location))
        merged = with_client_properties({**self._properties, **metadata.properties}, self._properties)
        io = load_file_io(merged, location)
        catalog: Any = self
        return Table(names, metadata, location, io, catalog)

    def supports_server_side_planning(self) -> bool:
        """Return False: there is no server. pyiceberg calls this in each scan."""
        return False

    def _metadata_location(self, names: Identifier) -> str | None:
        uri = f"{self._file.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as opened:
            found = opened.execute(_QUERY, (NAME, ".".join(names[:-1]), names[-1])).fetchone()
        return None if found is None else found[0]
