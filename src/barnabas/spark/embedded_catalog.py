"""The catalog of the embedded warehouse: a SQLite file that says where each table's metadata is.

pyiceberg's catalog imports SQLAlchemy, which takes longer than to look at a small table. So a table is looked up here,
and pyiceberg's catalog is opened for everything else. Looking a table up again after that is its business, too.
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

NAME = "barnabas"
_QUERY = (
    "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? "
    "AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
)


class EmbeddedCatalog:
    """Does what pyiceberg's catalog does, which is opened when it is needed. Not thread-safe.

    :param file: the SQLite file. :param properties: of pyiceberg's catalog. :param open_catalog: opens it.
    """

    def __init__(self, file: Path, properties: dict[str, str], open_catalog: Callable[[], Catalog]) -> None:
        self._file = file
        self._properties = properties
        self._open_catalog = open_catalog
        self._whole: Catalog | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of Python, as when it is copied
            raise AttributeError(name)
        return getattr(self.opened(), name)

    def opened(self) -> Catalog:
        """Return pyiceberg's catalog, which looks up all tables from now on."""
        if self._whole is None:
            self._whole = self._open_catalog()
        return self._whole

    def load_table(self, identifier: str | Identifier) -> Table:
        """Return a table as it is now.

        :raises NoSuchTableError: there is none.
        """
        if self._whole is not None:
            return self._whole.load_table(identifier)
        names = Catalog.identifier_to_tuple(identifier)
        try:
            location = self._metadata_location(names)
        except sqlite3.Error:  # no such file yet, or one of another version: pyiceberg makes it, or says what is wrong
            return self.opened().load_table(identifier)
        if location is None:
            raise NoSuchTableError(f"Table does not exist: {'.'.join(names)}")
        metadata = FromInputFile.table_metadata(load_file_io(self._properties, location).new_input(location))
        io = load_file_io({**self._properties, **metadata.properties}, location)
        catalog: Any = self
        return Table(names, metadata, location, io, catalog)

    def supports_server_side_planning(self) -> bool:
        """Return False: there is no server. Each scan asks."""
        return False

    def _metadata_location(self, names: Identifier) -> str | None:
        uri = f"{self._file.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as opened:
            found = opened.execute(_QUERY, (NAME, ".".join(names[:-1]), names[-1])).fetchone()
        return None if found is None else found[0]
