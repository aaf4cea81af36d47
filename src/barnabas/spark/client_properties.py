"""The properties of catalogs that only the client chooses.

pyiceberg merges the properties of a catalog with those of three other sources: the server's answer to `/v1/config`, the
`config` and the credentials in the server's answer for a table, and the properties of the table itself, which any tool
may set. pyiceberg then imports the classes that the properties name, reads local files that they name, and sends the
client's login to the addresses that they name. So these properties are taken from the client's own configuration alone:

    classes             every name that ends with -impl or .impl, and `auth`, which may name one
    login               auth, credential, token, scope, audience, resource, oauth2-server-uri,
                        rest.sigv4*, rest.signing-*
    local files         ssl, client.profile-name, s3.profile-name, hdfs.kerberos_ticket, gcs.session-kwargs
    roles of AWS        client.role-*, s3.role-*
    time limits         rest.client.*

Requests to the storage of Google, Azure and Hugging Face contain a token: the given one, or one of this machine. So
another source may set the address of such a storage only together with a token, for clients without own credentials.

All other properties pass, in particular `uri`, `prefix`, `warehouse`, `header.*`, and the address and the keys of S3.
A request to S3 contains a signature for its host, but no secret key.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import new_class
from typing import Any, NamedTuple

from pyiceberg.catalog import BOTOCORE_SESSION, MetastoreCatalog
from pyiceberg.io import (
    ADLS_ACCOUNT_HOST,
    ADLS_ACCOUNT_KEY,
    ADLS_BLOB_STORAGE_AUTHORITY,
    ADLS_BLOB_STORAGE_SCHEME,
    ADLS_CLIENT_SECRET,
    ADLS_CONNECTION_STRING,
    ADLS_CREDENTIAL,
    ADLS_DFS_STORAGE_AUTHORITY,
    ADLS_DFS_STORAGE_SCHEME,
    ADLS_SAS_TOKEN,
    ADLS_TOKEN,
    AWS_PROFILE_NAME,
    GCS_SERVICE_HOST,
    GCS_SESSION_KWARGS,
    GCS_TOKEN,
    HDFS_KERB_TICKET,
    HF_ENDPOINT,
    HF_TOKEN,
    S3_PROFILE_NAME,
    FileIO,
)
from pyiceberg.table import StagedTable, Table, TableProperties
from pyiceberg.typedef import EMPTY_DICT, Properties

from barnabas.spark.errors import WarehouseError

LOCATION_PROVIDER = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
_OF_CLIENT = frozenset(
    {
        *("auth", "ssl", "credential", "token", "scope", "audience", "resource", "oauth2-server-uri"),
        *(AWS_PROFILE_NAME, S3_PROFILE_NAME, BOTOCORE_SESSION, HDFS_KERB_TICKET, GCS_SESSION_KWARGS),
    }
)
_BEGIN_OF_CLIENT = ("rest.sigv4", "rest.signing-", "rest.client.", "client.role-", "s3.role-")
_END_OF_CLASSES = ("-impl", ".impl")


class _TokenStorage(NamedTuple):
    """The properties of a storage whose requests contain a token."""

    addresses: tuple[str, ...]
    tokens: tuple[str, ...]
    """With one of these properties, no token of this machine is sent."""
    credentials: tuple[str, ...]
    """The beginnings of all properties that contain credentials."""


_TOKEN_STORAGES = (
    _TokenStorage((GCS_SERVICE_HOST,), (GCS_TOKEN,), (GCS_TOKEN,)),
    _TokenStorage((HF_ENDPOINT,), (HF_TOKEN,), (HF_TOKEN,)),
    _TokenStorage(
        (
            *(ADLS_ACCOUNT_HOST, ADLS_CONNECTION_STRING, ADLS_BLOB_STORAGE_AUTHORITY, ADLS_BLOB_STORAGE_SCHEME),
            *(ADLS_DFS_STORAGE_AUTHORITY, ADLS_DFS_STORAGE_SCHEME),
        ),
        (ADLS_SAS_TOKEN, ADLS_ACCOUNT_KEY),
        (ADLS_SAS_TOKEN, ADLS_ACCOUNT_KEY, ADLS_TOKEN, ADLS_CREDENTIAL, ADLS_CLIENT_SECRET),
    ),
)


def with_client_properties(properties: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return merged properties, with the client's choice of each property that only the client chooses.

    :param properties: The properties of the client and of other sources.
    :param own: The properties of the client alone.

    >>> with_client_properties({"prefix": "p", "py-io-impl": "a.B", "token": "x"}, {"token": "y"})
    {'prefix': 'p', 'token': 'y'}
    """
    chosen = {name: value for name, value in properties.items() if not _is_of_client(name)}
    chosen |= {name: value for name, value in own.items() if _is_of_client(name)}
    for storage in _TOKEN_STORAGES:
        has_own = any(name.startswith(storage.credentials) for name in own)
        if has_own or not any(chosen.get(name) for name in storage.tokens):
            for name in storage.addresses:
                chosen.pop(name, None)
            chosen |= {name: own[name] for name in storage.addresses if name in own}
    return chosen


def _is_of_client(name: str) -> bool:
    return name in _OF_CLIENT or name.startswith(_BEGIN_OF_CLIENT) or name.endswith(_END_OF_CLASSES)


def check_location_provider(properties: Mapping[str, str], name: str) -> None:
    """Check that pyiceberg imports no class when it writes to a table.

    :param properties: The properties of the table.
    :param name: The name of the table.
    :raises WarehouseError: The table names a class.
    """
    if properties.get(LOCATION_PROVIDER):
        raise WarehouseError(
            f"table {name}: the property {LOCATION_PROVIDER} names a Python class, which Barnabas does not import: "
            "remove it, or write to another table"
        )


class RestrictedCatalog(MetastoreCatalog):
    """The part of a catalog that keeps tables from choosing what only the client chooses."""

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        merged = with_client_properties({**self.properties, **properties}, self.properties)
        return super()._load_file_io(merged, location)

    def _update_and_stage_table(self, current_table: Table | None, *others: Any, **named: Any) -> StagedTable:
        # Each commit passes here with the current table, which may differ from the one that the commit began with.
        if current_table is not None:
            check_location_provider(current_table.properties, ".".join(current_table.name()))
        return super()._update_and_stage_table(current_table, *others, **named)


@cache
def restricted(kind: type[MetastoreCatalog]) -> type[MetastoreCatalog]:
    """Return a subclass of a catalog class, whose tables do not choose what only the client chooses."""
    made: type[MetastoreCatalog] = new_class(kind.__name__, (RestrictedCatalog, kind))
    return made
