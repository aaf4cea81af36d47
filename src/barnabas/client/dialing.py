"""How clients make connections: with the settings of the client, over the network."""

from __future__ import annotations

from barnabas import __version__
from barnabas.client.cluster import Channel, Dial
from barnabas.client.config import ClientConfig
from barnabas.net.dialer import dial


def dial_with(config: ClientConfig) -> Dial:
    """Return a function that connects to (host, port) with the timeout and the client id of `config`."""

    async def connect(host: str, port: int) -> Channel:
        return await dial(
            host,
            port,
            client_id=config.client_id,
            connect_timeout_s=config.connect_timeout_ms / 1000,
            software_version=__version__,
        )

    return connect
