"""pyiceberg's Hive catalog with a time limit for each wait for the metastore. Needs `pyiceberg[hive]`."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlparse

from pyiceberg.catalog.hive import HiveCatalog, _HiveClient
from thrift.transport import TSocket, TTransport

from barnabas.spark.catalog_time_limits import milliseconds
from barnabas.spark.client_properties import RestrictedCatalog

SOCKET_MS = "hive.client.socket-timeout-ms"
SOCKET_MS_DEFAULT = 30_000


class _BoundedHiveClient(_HiveClient):
    """A client of a metastore with a time limit.

    :param client: The client without a limit. It is not used afterwards.
    """

    def __init__(self, client: _HiveClient, socket_ms: int) -> None:
        self._socket_ms = socket_ms
        ugi = ":".join(client._ugi) if client._ugi else None
        super().__init__(client._uri, ugi, client._kerberos_auth, client._kerberos_service_name)

    def _init_thrift_transport(self) -> Any:
        address = urlparse(self._uri)
        socket = TSocket.TSocket(address.hostname, address.port)
        socket.setTimeout(self._socket_ms)
        if self._kerberos_auth:
            service = self._kerberos_service_name
            return TTransport.TSaslClientTransport(socket, host=address.hostname, service=service)
        return TTransport.TBufferedTransport(socket)


class BoundedHiveCatalog(RestrictedCatalog, HiveCatalog):
    """A Hive catalog whose connections have a time limit, and whose tables name no classes."""

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> _HiveClient:
        socket_ms = milliseconds(properties, SOCKET_MS, SOCKET_MS_DEFAULT)
        return _BoundedHiveClient(HiveCatalog._create_hive_client(properties), socket_ms)
