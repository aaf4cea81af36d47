"""Where the ZooKeeper servers are and how to speak with them: one immutable value, checked when it is made.

The address is written as Kafka writes `zookeeper.connect`: `host:port,host:port/chroot`. All that Barnabas keeps is
below the chroot, so that several clusters can share one ensemble.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.addresses import host_ports, split_host_port
from barnabas.coordination.metadata_store import InvalidPathError, check_path
from barnabas.errors import ConfigurationError

DEFAULT_PORT = 2181
DEFAULT_SESSION_TIMEOUT_S = 18.0
"""As Kafka's `zookeeper.session.timeout.ms`."""


@dataclass(frozen=True, slots=True)
class ZooKeeperAddress:
    """The servers of an ensemble, each a host and a port, and the node below which everything stands.

    :param chroot: a path, or empty where it is the root.
    """

    servers: tuple[tuple[str, int], ...]
    chroot: str = ""

    @classmethod
    def parse(cls, text: str) -> ZooKeeperAddress:
        """Read `host:port,host:port/chroot`; a port that is missing is 2181.

        >>> ZooKeeperAddress.parse("z1:2181, [::1]:2182/barnabas")
        ZooKeeperAddress(servers=(('z1', 2181), ('::1', 2182)), chroot='/barnabas')

        :raises ConfigurationError: it is no such address.
        """
        listed, slash, below = text.strip().partition("/")
        servers = tuple(_server(part.strip(), text) for part in listed.split(","))
        chroot = slash + below.rstrip("/") if below.strip("/") else ""
        if chroot:
            try:
                check_path(chroot)
            except InvalidPathError as error:
                raise ConfigurationError(f"zookeeper.connect {text!r}: {chroot!r} is no path of a node") from error
        return cls(servers, chroot)

    def __str__(self) -> str:
        return self.hosts + self.chroot

    @property
    def hosts(self) -> str:
        """The servers alone, as they are written."""
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
    """How to open a session; the settings' names are Kafka's.

    :param connect: `zookeeper.connect`: `host:port,host:port/chroot`.
    :param session_timeout_s: `zookeeper.session.timeout.ms`: a session from which the servers have heard nothing
        for so long is over. The servers may grant another one, within their own limits.
    :param connection_timeout_s: `zookeeper.connection.timeout.ms`: how long to wait for a first connection; by
        default as long as a session lasts.
    :param call_timeout_s: how long one call may take, whatever happens to the connection; by default as long as a
        session lasts.
    :param auth: `zookeeper.auth`: `user:password` (ZooKeeper's scheme "digest").
    :param set_acl: `zookeeper.set.acl`: whoever authenticates so may change the nodes that this session creates, and
        everybody may read them; else everybody may do everything.
    """

    connect: str
    session_timeout_s: float = DEFAULT_SESSION_TIMEOUT_S
    connection_timeout_s: float | None = None
    call_timeout_s: float | None = None
    auth: str | None = field(default=None, repr=False)
    set_acl: bool = False

    def __post_init__(self) -> None:
        ZooKeeperAddress.parse(self.connect)
        for name in ("session_timeout_s", "connection_timeout_s", "call_timeout_s"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise ConfigurationError(f"{name} is {seconds}; it must be above 0")
        user, colon, password = (self.auth or "user:password").partition(":")
        if not (user and colon and password):
            raise ConfigurationError("zookeeper.auth is no user:password")
        if self.set_acl and self.auth is None:
            raise ConfigurationError("zookeeper.set.acl needs zookeeper.auth: who else might change the nodes?")

    @property
    def address(self) -> ZooKeeperAddress:
        """The servers and the chroot."""
        return ZooKeeperAddress.parse(self.connect)
