"""The listeners of a broker, from its settings: names, addresses, security protocols, TLS and SASL settings.

A listener serves clients or brokers. The listener for brokers is REPLICATION, at `inter.broker.host` and
`inter.broker.port`, or the one that `inter.broker.listener.name` names. Without `listeners`, one listener, PLAINTEXT,
serves clients at `host` and `port`.

A setting of one listener, `listener.name.<name>.<setting>`, overrides the setting of the broker, as in Kafka. The
module does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.addresses import PORT_MAX, bare_host, host_port, is_loopback, split_listener
from barnabas.broker.settings.rules import items_of
from barnabas.broker.settings.static import BROKER_SETTINGS, BrokerConfig
from barnabas.errors import ConfigurationError
from barnabas.security.principal import ANONYMOUS
from barnabas.security.protocols import PLAIN, SASL_MECHANISMS, SecurityProtocol
from barnabas.security.secrets import Secret
from barnabas.security.tls_settings import ClientAuth, TlsSettings

CLIENT_LISTENER = "PLAINTEXT"
"""The name of the client listener without `listeners`."""
BROKER_LISTENER = "REPLICATION"
"""The name of the inter-broker listener without `inter.broker.listener.name`."""
CONTROLLER = "CONTROLLER"
"""The name of Kafka's listener for controllers, which Barnabas does not have."""
LISTENERS_MAX = 32
OVERRIDE_PREFIX = "listener.name."
OVERRIDABLE = (
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.key.password",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
    "ssl.principal.mapping.rules",
    "sasl.enabled.mechanisms",
    "connections.max.reauth.ms",
    "max.connection.creation.rate",
)
"""The settings that a single listener can override."""

_LISTENER = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)://(?P<host>\[[^\]]*\]|[^:\[\]/]*):(?P<port>[0-9]{1,5})")


class Endpoint(NamedTuple):
    """One item of `listeners` or `advertised.listeners`; the name is in upper case."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """One listener.

    :param name: the name in upper case.
    :param host: the address to listen on; empty for all addresses. `port` is 0 for a free port.
    :param advertised_host: the host for clients; empty for `host`. `advertised_port` is 0 for the port in use.
    :param serves_brokers: True for a listener that serves other brokers only.
    :param overrides_of: the name of the listener whose settings (`listener.name.<name>.`) apply.
    :param flag: the setting to change if the address is in use.
    :param exposes: the consequence if a listener has no authentication, for errors.
    """

    name: str
    host: str
    port: int
    advertised_host: str = ""
    advertised_port: int = 0
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    serves_brokers: bool = False
    overrides_of: str = ""
    flag: str = "listeners"
    exposes: str = "accepts connections from other machines"

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can connect."""
        return is_loopback(self.host)


def parse_endpoints(setting: str, value: str) -> list[Endpoint]:
    """Parse `listeners` or `advertised.listeners`.

    :raises ConfigurationError: an item is not NAME://HOST:PORT, or a name occurs twice.
    """
    found: list[Endpoint] = []
    for item in items_of(value):
        match = _LISTENER.fullmatch(item)
        if match is None or int(match["port"]) > PORT_MAX:
            raise ConfigurationError(f"{setting} contains {item[:100]!r}; it must be NAME://HOST:PORT")
        try:
            host = bare_host(match["host"]) if match["host"] else ""
        except ValueError as error:
            raise ConfigurationError(f"{setting}: {error}") from None
        found.append(Endpoint(match["name"].upper(), host, int(match["port"])))
    found = [each for each in found if each.name != CONTROLLER]
    names = [each.name for each in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigurationError(f"{setting} contains the listener {min(twice)} twice")
    if len(found) > LISTENERS_MAX:
        raise ConfigurationError(f"{setting} contains {len(found)} listeners; the maximum is {LISTENERS_MAX}")
    return found


def parse_protocols(value: str) -> dict[str, SecurityProtocol]:
    """Parse `listener.security.protocol.map`; the default names map to themselves.

    :raises ConfigurationError: an item is not NAME:PROTOCOL.
    """
    found = {each.value: each for each in SecurityProtocol}
    for item in items_of(value):
        name, _, protocol = item.partition(":")
        try:
            found[name.strip().upper()] = SecurityProtocol(protocol.strip().upper())
        except ValueError:
            raise ConfigurationError(
                f"listener.security.protocol.map contains {item[:100]!r}; it must be NAME:PROTOCOL, with one of"
                f" {', '.join(each.value for each in SecurityProtocol)}"
            ) from None
    return found


def listeners_of(config: BrokerConfig) -> list[ListenerConfig]:
    """Return all listeners of a broker: those for clients first.

    :raises ConfigurationError: the settings of listeners are invalid or contradict each other.
    """
    protocols = parse_protocols(config.listener_security_protocol_map)
    given = parse_endpoints("listeners", config.listeners)
    advertised = {each.name: each for each in parse_endpoints("advertised.listeners", config.advertised_listeners)}
    for_brokers = _names_for_brokers(config, given)
    found: list[ListenerConfig] = []
    for each in given:
        if each.name not in protocols:
            raise ConfigurationError(
                f"listener {each.name} has no security protocol; add {each.name}:PROTOCOL to"
                " listener.security.protocol.map"
            )
        own = advertised.pop(each.name, Endpoint(each.name, "", 0))
        found.append(
            ListenerConfig(
                name=each.name,
                host=each.host,
                port=each.port,
                advertised_host=own.host,
                advertised_port=own.port,
                protocol=protocols[each.name],
                serves_brokers=each.name in for_brokers,
            )
        )
    if not given:
        found.append(
            ListenerConfig(
                name=CLIENT_LISTENER,
                host=config.host,
                port=config.port,
                advertised_host=config.advertised_host,
                advertised_port=config.advertised_port,
                flag="--port",
            )
        )
        advertised.pop(CLIENT_LISTENER, None)
    if advertised:
        raise ConfigurationError(f"advertised.listeners contains {min(advertised)}, which is not in listeners")
    if not any(not each.serves_brokers for each in found):
        raise ConfigurationError("no listener serves clients; add one to listeners")
    if BROKER_LISTENER in for_brokers and not any(each.name == BROKER_LISTENER for each in found):
        found.append(_replication_listener(config, found))
    return sorted(found, key=lambda each: each.serves_brokers)


def inter_broker_listener(config: BrokerConfig) -> str:
    """Return the name of the listener that this broker uses for connections to other brokers.

    Kafka permits one listener for clients and brokers. Here, REPLICATION then serves the brokers, with the security
    protocol of that listener.
    """
    name = config.inter_broker_listener_name.upper()
    names = [each.name for each in parse_endpoints("listeners", config.listeners)] or [CLIENT_LISTENER]
    return BROKER_LISTENER if names == [name] else name or BROKER_LISTENER


def _names_for_brokers(config: BrokerConfig, given: Sequence[Endpoint]) -> set[str]:
    """Return the names of the listeners that serve brokers only."""
    names = {each.name for each in given}
    main = inter_broker_listener(config)
    others = {each.upper() for each in items_of(config.inter_broker_additional_listener_names)}
    for each in {main, *others} - names - {BROKER_LISTENER}:
        raise ConfigurationError(f"listener {each} serves brokers, but is not in listeners")
    if not config.zookeeper_connect and main == BROKER_LISTENER and not others:
        return {BROKER_LISTENER} & names  # A single broker has no other brokers to serve.
    return {main, *others}


def _replication_listener(config: BrokerConfig, others: Sequence[ListenerConfig]) -> ListenerConfig:
    """Return the listener REPLICATION, which is not in `listeners`."""
    named = config.inter_broker_listener_name.upper()
    template = next((each for each in others if each.name == named), None)
    return ListenerConfig(
        name=BROKER_LISTENER,
        host=config.inter_broker_host or others[0].host,
        port=config.inter_broker_port,
        advertised_host=config.inter_broker_host or others[0].advertised_host,
        protocol=SecurityProtocol(config.security_inter_broker_protocol) if template is None else template.protocol,
        serves_brokers=True,
        overrides_of="" if template is None else template.name,
        flag="inter.broker.port",
    )


def authenticates(config: BrokerConfig, listener: ListenerConfig) -> bool:
    """Return whether each client of a listener must prove its identity."""
    if listener.protocol.uses_sasl:
        return True
    return listener.protocol is SecurityProtocol.SSL and client_auth(config, listener) is ClientAuth.REQUIRED


def check_protection(config: BrokerConfig, listeners: Sequence[ListenerConfig]) -> list[str]:
    """Check that no other machine can connect without authentication, unless the operator permits it. The same applies
    to the listener for the metadata store.

    :returns: the addresses of the listeners for which the operator has permitted it.
    :raises ConfigurationError: a listener without authentication accepts connections from other machines.
    """
    open_to_all = [each for each in listeners if not each.is_loopback and not authenticates(config, each)]
    open_to_all += _open_metadata_store(config, listeners)
    if open_to_all and not config.allow_anonymous:
        raise ConfigurationError(
            f"listener {open_to_all[0].name} at {host_port(open_to_all[0].host or '0.0.0.0', open_to_all[0].port)}"
            f" {open_to_all[0].exposes} without authentication; secure it (barnabas security init), or"
            " permit this with --allow-anonymous (allow.anonymous=true)"
        )
    return [f"{each.name} at {host_port(each.host or '0.0.0.0', each.port)}" for each in open_to_all]


def _open_metadata_store(config: BrokerConfig, listeners: Sequence[ListenerConfig]) -> list[ListenerConfig]:
    """Return the listener for the metadata store, if other machines or the users of this machine need protection from
    it. It has no authentication, and its clients can read and change the credentials of all users.
    """
    if not config.zookeeper_listener:
        return []
    host, port = split_listener(config.zookeeper_listener)
    found = ListenerConfig(
        name="zookeeper.listener",
        host=host,
        port=port,
        exposes="serves the metadata store, which contains the credentials of users,",
    )
    return [found] if not found.is_loopback or any(each.protocol.uses_sasl for each in listeners) else []


def requires_super_users(config: BrokerConfig, listener: ListenerConfig) -> bool:
    """Return whether a listener accepts super users only, because its clients act as brokers."""
    return listener.serves_brokers and authenticates(config, listener)


def check_super_users(config: BrokerConfig, listeners: Sequence[ListenerConfig]) -> None:
    """Check that other brokers can connect.

    :raises ConfigurationError: a listener accepts super users only, and there are none.
    """
    for each in listeners:
        if requires_super_users(config, each) and not config.super_users.strip():
            raise ConfigurationError(
                f"listener {each.name} accepts only brokers whose principals are in super.users, and super.users is"
                " empty; add the principals of all brokers"
            )


def check_authorization(config: BrokerConfig, listeners: Sequence[ListenerConfig]) -> None:
    """Check that ACLs cannot lock out everybody, and that they do not stop the replication.

    :raises ConfigurationError: nobody could create the first ACL, or brokers cannot authenticate.
    """
    if not config.authorizer_class_name:
        return
    if not config.super_users.strip() and not config.allow_everyone_if_no_acl_found:
        raise ConfigurationError("authorizer.class.name is set, and super.users is empty; name an administrator there")
    if not config.zookeeper_connect:
        return
    is_anonymous_super_user = str(ANONYMOUS) in [each.strip() for each in config.super_users.split(";")]
    for each in listeners:
        if each.serves_brokers and not authenticates(config, each) and not is_anonymous_super_user:
            raise ConfigurationError(
                f"authorizer.class.name is set, and listener {each.name} does not authenticate the other brokers; use"
                " SSL or SASL for it (security.inter.broker.protocol, or inter.broker.listener.name)"
            )


def client_auth(config: BrokerConfig, listener: ListenerConfig) -> ClientAuth:
    """Return the client certificates that a TLS listener demands.

    As in Kafka, a listener with SASL requests certificates only if its own `listener.name.<name>.ssl.client.auth` is
    set (KIP-684).
    """
    if listener.protocol.uses_sasl and _override(config, listener, "ssl.client.auth") is None:
        return ClientAuth.NONE
    return ClientAuth(_value(config, listener, "ssl.client.auth"))


def tls_settings(config: BrokerConfig, listener: ListenerConfig) -> TlsSettings:
    """Return the TLS settings of a listener, for its accepted connections and for this broker's own connections."""
    key_store = _value(config, listener, "ssl.keystore.location")
    trust_store = _value(config, listener, "ssl.truststore.location")
    key = _value(config, listener, "ssl.keystore.key")
    key_password = _value(config, listener, "ssl.key.password")
    return TlsSettings(
        key_store=key_store or None,
        certificate_chain=_value(config, listener, "ssl.keystore.certificate.chain"),
        key=Secret(key) if key else None,
        key_password=Secret(key_password) if key_password else None,
        trust_store=trust_store or None,
        trusted_certificates=_value(config, listener, "ssl.truststore.certificates"),
        protocols=tuple(items_of(_value(config, listener, "ssl.enabled.protocols"))),
        cipher_suites=_value(config, listener, "ssl.cipher.suites"),
        client_auth=client_auth(config, listener),
        verifies_host=config.ssl_endpoint_identification_algorithm != "",
    )


def mapping_rules(config: BrokerConfig, listener: ListenerConfig) -> str:
    """Return the rules that map distinguished names to principal names."""
    return _value(config, listener, "ssl.principal.mapping.rules")


def reauthentication_ms(config: BrokerConfig, listener: ListenerConfig) -> int:
    """Return the maximum lifetime of a SASL session in ms; 0 for no limit."""
    return int(_value(config, listener, "connections.max.reauth.ms"))


def sasl_mechanisms(config: BrokerConfig, listener: ListenerConfig) -> tuple[str, ...]:
    """Return the SASL mechanisms that a listener offers.

    :raises ConfigurationError: there is none, or PLAIN would send passwords without encryption.
    """
    names = tuple(items_of(_value(config, listener, "sasl.enabled.mechanisms")))
    if not names:
        raise ConfigurationError(f"listener {listener.name} uses SASL, but sasl.enabled.mechanisms is empty")
    if unknown := [each for each in names if each not in SASL_MECHANISMS]:
        raise ConfigurationError(
            f"sasl.enabled.mechanisms contains {unknown[0]!r}; it can contain {', '.join(SASL_MECHANISMS)}"
        )
    if PLAIN in names and not listener.protocol.uses_tls and not config.sasl_plain_without_tls_enable:
        raise ConfigurationError(
            f"listener {listener.name} offers PLAIN without TLS, which sends passwords without encryption; use SASL_SSL"
            " or SCRAM, or permit this with sasl.plain.without.tls.enable=true"
        )
    return names


def own_connection_rate(config: BrokerConfig, listener: ListenerConfig) -> float | None:
    """Return the own maximum rate of new connections of a listener; None without one."""
    own = _override(config, listener, "max.connection.creation.rate")
    return None if own is None else float(own)


def _value(config: BrokerConfig, listener: ListenerConfig, setting: str) -> str:
    """Return the value of a setting for a listener: its own, or that of the broker."""
    own = _override(config, listener, setting)
    return str(getattr(config, setting.replace(".", "_"))) if own is None else own


def _override(config: BrokerConfig, listener: ListenerConfig, setting: str) -> str | None:
    """Return the own value of a listener for a setting; None without one."""
    prefix = f"{OVERRIDE_PREFIX}{(listener.overrides_of or listener.name).lower()}."
    return config.listener_overrides.get(prefix + setting)


def check_overrides(config: BrokerConfig) -> None:
    """Check the settings of single listeners.

    :raises ConfigurationError: a listener does not exist, a listener cannot override a setting, or a value is invalid.
    """
    names = {each.name.lower() for each in listeners_of(config)}
    for name, value in config.listener_overrides.items():
        listener, _, setting = name.removeprefix(OVERRIDE_PREFIX).partition(".")
        if listener not in names:
            raise ConfigurationError(f"{name}: there is no listener {listener.upper()}; listeners names all listeners")
        if setting not in OVERRIDABLE:
            raise ConfigurationError(f"{name}: a listener cannot override {setting or 'a setting without a name'}")
        BROKER_SETTINGS[setting.replace(".", "_")].rule.check(name, value)
