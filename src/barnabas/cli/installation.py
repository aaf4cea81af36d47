"""The files of a small secured installation: a CA, certificates, broker settings, and the first administrator.

Each broker gets a folder with its files. An installation with one broker uses the folder of the installation itself:

    ca.pem, ca-key.pem        the CA. Only `barnabas security` needs the key
    installation.json         the hosts, for new certificates
    admin.toml                the profile of the administrator
    admin.password            the password of the administrator
    broker.toml               the settings of a broker
    server.pem                the private key and the certificate of a broker
    bootstrap-users.json      the administrator's credentials, salted, and the first ACLs; imported at the first start

The module does no I/O: `plan` returns the contents of all files.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from barnabas.addresses import host_port, is_loopback
from barnabas.cli.profiles import profile_text, settings_text
from barnabas.errors import ConfigurationError
from barnabas.security.authority import CERTIFICATE_DAYS, Authority, Issued
from barnabas.security.scram import ScramMechanism, credential_from_password

CA_CERTIFICATE = "ca.pem"
CA_KEY = "ca-key.pem"
DESCRIPTION = "installation.json"
PROFILE = "admin.toml"
PASSWORD = "admin.password"
BROKER_SETTINGS = "broker.toml"
SERVER_CERTIFICATE = "server.pem"
FIRST_USERS = "bootstrap-users.json"

ADMIN = "admin"
BROKER_NAME = "broker-"
"""The prefix of the common names of brokers. Client certificates cannot have such a name."""
CLIENTS = "SASL_SSL"
BROKERS = "BROKERS"
"""The names of the listeners."""
HOST_NAME = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
REPLICAS_MAX = 3
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
FIRST_ACLS = (
    ("User:registry", "topic", "_schemas", ("read", "write", "create")),
    ("User:registry", "cluster", "kafka-cluster", ("describe",)),
    ("User:mirror", "topic", "_mirror", ("read", "write", "create")),
    ("User:mirror", "topic", "_audit", ("write", "create")),
    ("User:loads", "topic", "_audit", ("read", "write", "create")),
)
"""The principals of the registry, of mirrors and of loads, and their operations on topics that only they need."""
BROKERS_ONLY = f"RULE:^CN=({BROKER_NAME}[0-9]+)$/CN=$1/"
"""The rule that maps the certificates of brokers to principals."""


@dataclass(frozen=True, slots=True)
class BrokerHosts:
    """The names and addresses of one broker. Clients connect to the first one.

    :param number: 1 for the first broker.
    :param folder: the folder of the broker's files, in the folder of the installation; `.` if both are the same.
    """

    number: int
    hosts: tuple[str, ...]
    folder: str

    @property
    def common_name(self) -> str:
        return f"{BROKER_NAME}{self.number}"

    @property
    def certified_hosts(self) -> tuple[str, ...]:
        """The names in the certificate. `localhost` includes the addresses of the loopback interface."""
        more = ("127.0.0.1", "::1") if "localhost" in self.hosts else ()
        return tuple(dict.fromkeys([*self.hosts, *more]))

    @property
    def listen_host(self) -> str:
        """The address to listen on: the loopback address if the broker is reachable there only, else all addresses."""
        first = self.hosts[0]
        return first if all(is_loopback(host) for host in self.hosts) else ""


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of the operator.

    :param port: the port for clients; `broker_port` is the port for other brokers.
    :param zookeeper: the ZooKeeper of several brokers; empty for one broker.
    :param installed_at: the folder of the files on each broker; None for the folder in which they are created.
    """

    port: int
    broker_port: int
    zookeeper: str = ""
    installed_at: PurePath | None = None
    days: int = CERTIFICATE_DAYS


def parse_hosts(given: Sequence[str]) -> list[BrokerHosts]:
    """Return the brokers of `--host NAME[,NAME...]` options.

    :raises ConfigurationError: a text is neither a host name nor an IP address, or occurs twice.
    """
    all_hosts: list[str] = []
    brokers = []
    for number, text in enumerate(given, start=1):
        hosts = tuple(each.strip().strip("[]") for each in text.split(","))
        for host in hosts:
            if not _is_address(host) and not HOST_NAME.fullmatch(host):
                raise ConfigurationError(f"{host[:100]!r} is not a host name or an IP address")
            if host in all_hosts:
                raise ConfigurationError(
                    f"host {host} occurs twice; several names of one broker are separated by commas"
                )
            all_hosts.append(host)
        brokers.append(BrokerHosts(number, hosts, hosts[0].replace(":", "_") if len(given) > 1 else "."))
    return brokers


def plan(
    folder: Path,
    brokers: Sequence[BrokerHosts],
    choices: Choices,
    now: datetime.datetime,
    password: str,
    new_salt: Callable[[], bytes],
) -> dict[str, str]:
    """Return the contents of all files, by path in the folder of the installation.

    :param folder: the absolute path of the installation.
    :param password: the password of the administrator.
    """
    authority = Authority.create("Barnabas CA", now)
    users = _first_users(password, new_salt)
    files = {
        CA_CERTIFICATE: authority.certificate,
        CA_KEY: authority.issued.key,
        DESCRIPTION: json.dumps(
            {"brokers": [{"folder": each.folder, "hosts": each.hosts} for each in brokers]}, indent=2
        )
        + "\n",
        PASSWORD: f"{password}\n",
        PROFILE: profile_text(
            {
                "bootstrap.servers": ",".join(host_port(each.hosts[0], choices.port) for each in brokers),
                "security.protocol": "SASL_SSL",
                "ssl.cafile": str(folder / CA_CERTIFICATE),
                "sasl.mechanism": ScramMechanism.SHA_512.value,
                "sasl.username": ADMIN,
                "sasl.password": f"${{file:{folder / PASSWORD}}}",
            }
        ),
    }
    for each in brokers:
        there = choices.installed_at or folder / each.folder
        own = {
            CA_CERTIFICATE: authority.certificate,
            SERVER_CERTIFICATE: server_certificate(authority, each, now, choices.days),
            FIRST_USERS: users,
            BROKER_SETTINGS: settings_text(broker_settings(each, brokers, choices, there)),
        }
        files |= {str(PurePath(each.folder) / name): text for name, text in own.items()}
    return files


def server_certificate(authority: Authority, broker: BrokerHosts, now: datetime.datetime, days: int) -> str:
    """Return a new private key and certificate of a broker."""
    return authority.issue_server(broker.certified_hosts, now, days, name=broker.common_name).key_store


def client_certificate(
    authority: Authority, name: str, now: datetime.datetime, days: int, hosts: Sequence[str] = ()
) -> str:
    """Return a private key and a certificate of a client with the principal `User:CN=<name>`.

    :param hosts: the host names and addresses of a server that also uses the certificate, such as a registry.
    :raises ConfigurationError: the name belongs to brokers, or is not a common name.
    """
    if name.lower().startswith(BROKER_NAME):
        raise ConfigurationError(
            f"{name!r}: names that begin with {BROKER_NAME} belong to brokers, which are super users"
        )
    if not re.fullmatch(r"[A-Za-z0-9_.@-]{1,64}", name):
        raise ConfigurationError(f"{name[:100]!r} must have 1 to 64 of the characters a-z A-Z 0-9 . _ @ -")
    issued = authority.issue_server(hosts, now, days, name=name) if hosts else authority.issue_client(name, now, days)
    return issued.key_store


def broker_settings(
    broker: BrokerHosts, brokers: Sequence[BrokerHosts], choices: Choices, folder: PurePath
) -> dict[str, str | int]:
    """Return the settings of a broker.

    :param folder: the folder with the files on the broker's machine.
    """
    listen, host = broker.listen_host, broker.hosts[0]
    listeners = {CLIENTS: choices.port}
    super_users = [f"User:{ADMIN}"]
    settings: dict[str, str | int] = {}
    if len(brokers) > 1:
        listeners[BROKERS] = choices.broker_port
        super_users += [f"User:CN={each.common_name}" for each in brokers]
        replicas = min(REPLICAS_MAX, len(brokers))
        settings = {
            "broker.id": broker.number,
            "zookeeper.connect": choices.zookeeper,
            "listener.security.protocol.map": f"{BROKERS}:SSL",
            "inter.broker.listener.name": BROKERS,
            f"listener.name.{BROKERS.lower()}.ssl.client.auth": "required",
            # No rule matches the certificates of clients, so this listener refuses them.
            f"listener.name.{BROKERS.lower()}.ssl.principal.mapping.rules": BROKERS_ONLY,
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "min.insync.replicas": max(1, replicas - 1),
        }
    return {
        "listeners": ",".join(f"{name}://{host_port(listen, port)}" for name, port in listeners.items()),
        "advertised.listeners": ",".join(f"{name}://{host_port(host, port)}" for name, port in listeners.items()),
        "sasl.enabled.mechanisms": ",".join(each.value for each in ScramMechanism),
        "ssl.keystore.location": str(folder / SERVER_CERTIFICATE),
        "ssl.truststore.location": str(folder / CA_CERTIFICATE),
        "super.users": ";".join(super_users),
        "authorizer.class.name": AUTHORIZER,
        "bootstrap.users.file": str(folder / FIRST_USERS),
        **settings,
    }


def parse_description(text: str, file: Path) -> list[BrokerHosts]:
    """Return the brokers of `installation.json`.

    :raises ConfigurationError: the file is malformed.
    """
    try:
        brokers = [
            BrokerHosts(number, tuple(str(host) for host in each["hosts"]), str(each["folder"]))
            for number, each in enumerate(json.loads(text)["brokers"], start=1)
        ]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigurationError(f"{file} is not a file of barnabas security init") from None
    if any(each.folder != "." and PurePath(each.folder).name != each.folder for each in brokers):
        raise ConfigurationError(f"{file} names a folder outside of the installation")
    return brokers


def authority_of(certificate: str, key: str) -> Authority:
    """Return the CA of the files `ca.pem` and `ca-key.pem`."""
    return Authority(Issued(certificate, key))


def _first_users(password: str, new_salt: Callable[[], bytes]) -> str:
    credentials = {each.value: credential_from_password(each, password, new_salt()).text() for each in ScramMechanism}
    return json.dumps({"users": {ADMIN: credentials}, "acls": _first_acls()}, indent=2) + "\n"


def _first_acls() -> list[dict[str, str]]:
    return [
        {
            "principal": principal,
            "host": "*",
            "operation": operation,
            "permission": "allow",
            "resource_type": kind,
            "resource_name": name,
            "pattern_type": "literal",
        }
        for principal, kind, name, operations in FIRST_ACLS
        for operation in operations
    ]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
