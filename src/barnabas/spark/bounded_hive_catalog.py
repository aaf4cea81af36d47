"""pyiceberg's Hive catalog with a time limit for each wait for the metastore. Needs `pyiceberg[hive]`."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlparse

from pyiceberg.catalog.hive import HiveCatalog
from thrift.transport import TSocket, TTransport

from barnabas.spark.bounded_catalogs import milliseconds

SOCKET_MS = "hive.client.socket-timeout-ms"
SOCKET_MS_DEFAULT = 30_000


class BoundedHiveCatalog(HiveCatalog):
    """A Hive catalog whose connections have a time limit."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        limit(self._client, milliseconds(properties, SOCKET_MS, SOCKET_MS_DEFAULT))


def limit(client: Any, milliseconds: int) -> None:
    """Replace the transport of a client, which connects with the first call, and its way to make new ones."""

    def transport() -> Any:
        address = urlparse(client._uri)
        socket = TSocket.TSocket(address.hostname, address.port)
        socket.setTimeout(milliseconds)
        if client._kerberos_auth:
            service = client._kerberos_service_name
            return TTransport.TSaslClientTransport(socket, host=address.hostname, service=service)
        return TTransport.TBufferedTransport(socket)

    client._init_thrift_transport = transport
    client._transport = transport()
