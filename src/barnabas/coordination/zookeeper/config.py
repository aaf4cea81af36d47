"""The addresses of ZooKeeper servers and the settings of a session.

The values are immutable and are checked when they are created.

The address has the format of Kafka's `zookeeper.connect`: `host:port,host:port/chroot`. All nodes of Barnabas are below
the chroot, so several clusters can share an ensemble.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from barnabas.addresses import host_ports, split_host_port
from barnabas.coordination.metadata_store import InvalidPathError, check_path
from barnabas.errors import ConfigurationError

DEFAULT_PORT = 2181
DEFAULT_SESSION_TIMEOUT_S = 18.0
"""The default of Kafka's `zookeeper.session.timeout.ms`."""


@dataclass(frozen=True, slots=True)
class ZooKeeperAddress:
    """The servers of an ensemble, as host and port, and the chroot.

    :param chroot: the path of the node that contains all nodes of the cluster; empty for the root.
    """

    servers: tuple[tuple[str, int], ...]
    chroot: str = ""

    @classmethod
    def parse(cls, text: str) -> ZooKeeperAddress:
        """Parse `host:port,host:port/chroot`. The default port is 2181.

        >>> ZooKeeperAddress.parse("z1:2181, [::1]:2182/barnabas")
        ZooKeeperAddress(servers=(('z1', 2181), ('::1', 2182)), chroot='/barnabas')

        :raises ConfigurationError: the text is not a valid address.
        """
        listed, slash, below = text.strip().partition("/")
        servers = tuple(_server(part.strip(), text) for part in listed.split(","))
        chroot = slash + below.rstrip("/") if below.strip("/") else ""
        if chroot:
            try:
                check_path(chroot)
            except InvalidPathError as error:
                raise ConfigurationError(f"zookeeper.connect {text!r}: {chroot!r} is not a valid path") from error
        return cls(servers, chroot)

    def __str__(self) -> str:
        return self.hosts + self.chroot

    @property
    def hosts(self) -> str:
        """The servers in the format `host:port,host:port`, without the chroot."""
        return host_ports(self.servers)


def _server(text: str, address: str) -> tuple[str, int]:
    try:
        host, port = split_host_port(text, DEFAULT_PORT)
    except ValueError as error:
        raise ConfigurationError(f"zookeeper.connect {address!r}: {error}; write host:port,host:port/chroot") from None
    if not port:
        raise ConfigurationError(
            f"zookeeper.connect {address!r}: {text!r} has port 0; write host:port,host:port/chroot"
        )
    return host, port


@dataclass(frozen=True, slots=True)
class ZooKeeperConfig:
    """The settings of a session, named after Kafka's.

    :param connect: `zookeeper.connect`: `host:port,host:port/chroot`.
    :param session_timeout_s: `zookeeper.session.timeout.ms`: the time without a heartbeat after which the servers end
        the session. The servers may grant a different timeout, within their own limits.
    :param connection_timeout_s: `zookeeper.connection.timeout.ms`: the time to wait for the first connection; by
        default, the session timeout.
    :param call_timeout_s: the maximum duration of one call, including reconnections; by default, the session timeout.
    :param auth: `zookeeper.auth`: `user:password` (ZooKeeper's scheme "digest").
    :param set_acl: `zookeeper.set.acl`: if true, only clients with the same credentials may change the nodes that this
        session creates. All clients may read them, except the nodes with secrets (`paths.is_secret`). If false, all
        clients may do everything.
    :param secure: secures a connected socket with TLS; its other arguments are the host and the timeout in seconds. It
        raises `OSError` if the handshake fails.
    :param has_certificate: true if the servers know this client by its certificate (ZooKeeper's scheme "x509").
    :param is_broker: false for consumers and their tools. Only brokers own the chroot and the nodes with secrets, and
        protect existing nodes with secrets.
    """

    connect: str
    session_timeout_s: float = DEFAULT_SESSION_TIMEOUT_S
    connection_timeout_s: float | None = None
    call_timeout_s: float | None = None
    auth: str | None = field(default=None, repr=False)
    set_acl: bool = False
    secure: Callable[[Any, str, float], Any] | None = field(default=None, repr=False)
    has_certificate: bool = False
    is_broker: bool = True

    def __post_init__(self) -> None:
        ZooKeeperAddress.parse(self.connect)
        for name in ("session_timeout_s", "connection_timeout_s", "call_timeout_s"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise ConfigurationError(f"{name} is {seconds}; it must be greater than 0")
        user, colon, password = (self.auth or "user:password").partition(":")
        if not (user and colon and password):
            raise ConfigurationError("zookeeper.auth must be user:password")
        if self.set_acl and self.auth is None and not self.has_certificate:
            raise ConfigurationError(
                "zookeeper.set.acl requires zookeeper.auth or a client certificate (zookeeper.ssl.keystore.location);"
                " without them, nobody can change the nodes"
            )

    @property
    def address(self) -> ZooKeeperAddress:
        """The servers and the chroot."""
        return ZooKeeperAddress.parse(self.connect)
