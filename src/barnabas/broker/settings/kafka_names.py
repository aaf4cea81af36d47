"""Kafka's broker settings that have another name in Barnabas, or that Barnabas does not have.

The names are those in Kafka's documentation of releases 0.9 to 4.3. A broker must start with Kafka's configuration
file, and tools that change these settings must not fail. So each name is one of these:

- a different name of a setting (`BrokerSetting.kafka_names`), a setting in a different unit (`OTHER_UNITS`), or
  `listeners`: the setting is translated;
- a setting without meaning in Barnabas (`WITHOUT_EFFECT`): it is accepted, and the broker logs that it has no effect;
- a setting that this broker cannot satisfy (`PROMISES`), such as an authorizer: it is rejected.

Any other name is assumed to be a typing error. The module does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.broker.settings.listeners import (
    CLIENT_LISTENER,
    OVERRIDE_PREFIX,
    Endpoint,
    parse_endpoints,
    parse_protocols,
)
from barnabas.broker.settings.static import OTHER_NAMES
from barnabas.broker.settings.unused import UNUSED_BROKER_SETTINGS
from barnabas.errors import ConfigurationError
from barnabas.security.protocols import SecurityProtocol

_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000
OTHER_UNITS = {
    "log.retention.minutes": ("log.retention.ms", _MINUTE_MS),
    "log.retention.hours": ("log.retention.ms", _HOUR_MS),
    "log.roll.hours": ("log.roll.ms", _HOUR_MS),
}
"""The corresponding setting in milliseconds and the conversion factor, for settings in other units.

As in Kafka, the smallest unit takes precedence.
"""

LISTENERS = {"listeners": ("host", "port"), "advertised.listeners": ("advertised.host", "advertised.port")}
"""The settings of the only listener, which replace `listeners` and `advertised.listeners` if it is PLAINTEXT."""

CONTROLLER_LISTENERS = "controller.listener.names"
"""The setting with the names of KRaft's listeners for controllers, which a broker of Barnabas leaves out."""
_KRAFT = re.compile(r"process\.roles|controller\.(?:quorum\..*|listener\.names)|metadata\.log\..*")
KRAFT_NOTE = (
    "%s: these settings are for KRaft, which Barnabas does not have; a cluster of one broker has its own metadata"
    " store, and the brokers of a larger cluster need the same zookeeper.connect"
)

PROMISES = {
    "process.roles": (
        ("", "broker", "broker,controller", "controller,broker"),
        "Barnabas has no controllers; start brokers only, with zookeeper.connect if there are several",
    ),
    "remote.log.storage.system.enable": (("false",), "tiered storage is not supported"),
    "principal.builder.class": (("",), "principals are the names that ssl.principal.mapping.rules and SASL produce"),
    "ssl.engine.factory.class": (("",), "Java classes are not supported"),
    "security.providers": (("",), "Java classes are not supported"),
    "sasl.server.callback.handler.class": (("",), "Java classes are not supported"),
    "sasl.client.callback.handler.class": (("",), "Java classes are not supported"),
    "sasl.login.callback.handler.class": (("",), "Java classes are not supported"),
    "delegation.token.secret.key": (("",), "delegation tokens are not supported"),
    "delegation.token.master.key": (("",), "delegation tokens are not supported"),
    "sasl.jaas.config": (("",), "use sasl.inter.broker.username and sasl.inter.broker.password, and barnabas user"),
    "ssl.keystore.password": (("",), "a PEM file has no password; ssl.key.password decrypts its private key"),
    "ssl.truststore.password": (("",), "a PEM file has no password"),
    "zookeeper.ssl.truststore.password": (("",), "a PEM file has no password"),
    "zookeeper.ssl.cipher.suites": (("",), "the cipher suites for ZooKeeper are OpenSSL's defaults"),
    "zookeeper.ssl.crl.enable": (("false",), "the revocation of certificates is not supported"),
    "zookeeper.ssl.ocsp.enable": (("false",), "the revocation of certificates is not supported"),
}
"""The values that this broker can satisfy, and the reason for rejecting all other values, by setting."""

_NAMES = """
add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms alter.config.policy.class.name
alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
auto.include.jmx.reporter broker.heartbeat.interval.ms broker.id.generation.enable broker.session.timeout.ms
client.quota.callback.class config.providers control.plane.listener.name controlled.shutdown.enable
controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms controller.listener.names
controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
controller.quorum.append.linger.ms controller.quorum.auto.join.enable controller.quorum.bootstrap.servers
controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes
controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
controller.quorum.retry.backoff.ms controller.quorum.voters controller.socket.timeout.ms cordoned.log.dirs
create.topic.policy.class.name
delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms delegation.token.master.key
delegation.token.max.lifetime.ms delegation.token.secret.key delete.records.purgatory.purge.interval.requests
early.start.listeners eligible.leader.replicas.enable fetch.purgatory.purge.interval.requests
follower.fetch.last.tiered.offset.enable group.consumer.assignor.offload.enable group.consumer.assignors
group.consumer.heartbeat.interval.ms group.consumer.max.assignment.interval.ms
group.consumer.max.heartbeat.interval.ms group.consumer.max.session.timeout.ms group.consumer.max.size
group.consumer.migration.policy group.consumer.min.assignment.interval.ms group.consumer.min.heartbeat.interval.ms
group.consumer.min.session.timeout.ms group.consumer.regex.refresh.interval.ms group.consumer.session.timeout.ms
group.coordinator.append.linger.ms group.coordinator.background.threads group.coordinator.new.enable
group.coordinator.rebalance.protocols group.coordinator.threads group.share.assignor.offload.enable
group.share.assignors group.share.delivery.count.limit group.share.enable group.share.heartbeat.interval.ms
group.share.initialize.retry.interval.ms group.share.max.assignment.interval.ms group.share.max.delivery.count.limit
group.share.max.groups group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms group.share.max.share.sessions
group.share.max.size group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks
group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms group.share.partition.max.record.locks
group.share.persister.class.name group.share.record.lock.duration.ms group.share.session.timeout.ms
group.streams.assignor.offload.enable group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms
group.streams.max.assignment.interval.ms group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms
group.streams.max.size group.streams.max.standby.replicas group.streams.min.assignment.interval.ms
group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms group.streams.min.task.offset.interval.ms
group.streams.num.standby.replicas group.streams.session.timeout.ms group.streams.task.offset.interval.ms
initial.broker.registration.timeout.ms inter.broker.protocol.version internal.metadata.log.segment.bytes
kafka.metrics.polling.interval.secs kafka.metrics.reporters leader.imbalance.per.broker.percentage
log.dir.failure.timeout.ms log.flush.scheduler.interval.ms log.flush.start.offset.checkpoint.interval.ms
log.initial.task.delay.ms log.message.downconversion.enable log.message.format.version
log.message.timestamp.difference.max.ms log.roll.jitter.hours max.connections.per.ip.overrides
max.request.partition.size.limit metadata.log.dir metadata.log.max.record.bytes.between.snapshots
metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes metadata.log.segment.min.bytes
metadata.log.segment.ms metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms
metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
num.replica.alter.log.dirs.threads offsets.commit.required.acks offsets.topic.compression.codec
password.encoder.cipher.algorithm password.encoder.iterations password.encoder.key.length
password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret principal.builder.class
process.roles producer.id.expiration.check.interval.ms producer.purgatory.purge.interval.requests queued.max.requests
quota.consumer.default quota.producer.default remote.fetch.max.wait.ms
remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms
remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size
remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks remote.log.reader.threads
remote.log.storage.manager.class.name remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
remote.log.storage.system.enable replica.socket.receive.buffer.bytes replication.quota.window.num
replication.quota.window.size.seconds request.timeout.ms reserved.broker.max.id sasl.client.callback.handler.class
sasl.jaas.config sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.login.callback.handler.class
sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol
sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.header.urlencode
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
sasl.oauthbearer.scope.claim.name sasl.oauthbearer.token.endpoint.url sasl.server.callback.handler.class
sasl.server.max.receive.size security.providers server.max.startup.time.ms share.coordinator.append.linger.ms
share.coordinator.cached.buffer.max.bytes share.coordinator.cold.partition.snapshot.interval.ms
share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
share.coordinator.state.topic.num.partitions share.coordinator.state.topic.prune.interval.ms
share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes share.coordinator.threads
share.coordinator.write.timeout.ms share.fetch.max.fetch.records share.fetch.purgatory.purge.interval.requests
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.listen.backlog.size
socket.receive.buffer.bytes socket.send.buffer.bytes ssl.allow.dn.changes ssl.allow.san.changes
ssl.engine.factory.class ssl.keymanager.algorithm ssl.keystore.password ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.password
transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
transaction.partition.verification.enable transaction.remove.expired.transaction.cleanup.interval.ms
transaction.state.log.load.buffer.size transaction.state.log.min.isr transaction.state.log.num.partitions
transaction.state.log.replication.factor transaction.state.log.segment.bytes transaction.two.phase.commit.enable
transactional.id.expiration.ms unclean.leader.election.interval.ms unstable.api.versions.enable
unstable.feature.versions.enable zookeeper.max.in.flight.requests zookeeper.metadata.migration.enable
zookeeper.metadata.migration.min.batch.size zookeeper.ssl.cipher.suites zookeeper.ssl.crl.enable
zookeeper.ssl.ocsp.enable zookeeper.ssl.protocol zookeeper.ssl.truststore.password zookeeper.sync.time.ms
"""
WITHOUT_EFFECT = frozenset(_NAMES.split())
"""The settings that are accepted but have no effect, both in a settings file and as dynamic settings."""

_FAMILIES = ("config.providers.", "rsm.config.", "rlmm.config.")
"""The prefixes of the settings that Kafka passes to plugins."""

_SECRET = re.compile(r"password|secret|passphrase|jaas|keystore\.key|delegation\.token\.master\.key")


def has_no_effect(name: str) -> bool:
    """Return whether a name is a Kafka broker setting that has no effect in Barnabas."""
    return name in WITHOUT_EFFECT or name in UNUSED_BROKER_SETTINGS or name.startswith(_FAMILIES)


def is_secret(name: str) -> bool:
    """Return whether the value of a setting is a secret, which must not be stored."""
    return _SECRET.search(name) is not None


def check_promise(name: str, value: str) -> None:
    """Check that a setting without effect has a valid value that this broker can satisfy.

    :raises ConfigurationError: the value is invalid, or this broker cannot satisfy it.
    """
    if name in UNUSED_BROKER_SETTINGS:
        UNUSED_BROKER_SETTINGS[name].rule.check(name, value)
    given = re.sub(r"\s*,\s*", ",", value.strip().lower())
    kept, why = PROMISES.get(name, ((given,), ""))
    if given not in kept:
        shown = "is set" if is_secret(name) else f"is {value!r}"
        raise ConfigurationError(f"{name} {shown}; {why}")


class Translated(NamedTuple):
    """Settings with their names in Barnabas."""

    settings: dict[str, Any]
    without_effect: list[str]
    """The sorted Kafka names of omitted settings, which have no effect."""
    notes: list[str]
    """Explanations of omitted settings."""


def translate(given: Mapping[str, Any]) -> Translated:
    """Translate Kafka's settings to the settings of Barnabas. Other names are returned unchanged.

    :param given: the values by dotted name.
    :raises ConfigurationError: a value cannot be translated, or this broker cannot satisfy it.
    """
    overrides = {name: value for name, value in given.items() if name.startswith(OVERRIDE_PREFIX)}
    named = {
        name.replace("_", ".").replace("-", "."): (name, value)
        for name, value in given.items()
        if name not in overrides
    }
    values = _without_controller_listeners({known: value for known, (_, value) in named.items()})
    without_effect = sorted(filter(has_no_effect, values))
    for known in without_effect:
        check_promise(known, str(values[known]))
    left_out = {*without_effect, *OTHER_NAMES, *OTHER_UNITS, *LISTENERS}
    settings = {name: value for known, (name, value) in named.items() if known not in left_out}
    of_kraft = list(filter(_KRAFT.fullmatch, without_effect))
    return Translated(
        _listeners(values) | _in_milliseconds(values) | _under_other_names(values) | settings | overrides,
        [name for name in without_effect if name not in of_kraft],
        [KRAFT_NOTE % ", ".join(of_kraft)] if of_kraft else [],
    )


def _without_controller_listeners(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without the listeners that `controller.listener.names` names."""
    names = {each.strip().upper() for each in str(values.get(CONTROLLER_LISTENERS, "")).split(",")}
    kept = dict(values)
    for setting in LISTENERS.keys() & values.keys():
        items = [each.strip() for each in str(values[setting]).split(",")]
        left = [each for each in items if each.partition("://")[0].upper() not in names]
        if left and len(left) < len(items):
            kept[setting] = ",".join(left)
    return kept


def _under_other_names(values: Mapping[str, Any]) -> dict[str, Any]:
    settings = {}
    for name in OTHER_NAMES.keys() & values.keys():
        other = OTHER_NAMES[name]
        if other not in values:
            settings[other] = values[name]
        elif name != "log.dir" and values[other] != values[name]:  # Kafka ignores log.dir if log.dirs is set.
            raise ConfigurationError(
                f"{name} and {other} are the same setting, but have the values {values[name]!r} and {values[other]!r}"
            )
    return settings


def _in_milliseconds(values: Mapping[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, (other, unit_ms) in OTHER_UNITS.items():
        if name in values and other not in values:
            settings.setdefault(other, _in_ms(name, values[name], unit_ms))
    return settings


def _listeners(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings for `listeners` and `advertised.listeners`: host and port for a single PLAINTEXT listener."""
    given = {name: str(values[name]) for name in LISTENERS.keys() & values.keys()}
    found = {name: parse_endpoints(name, value) for name, value in given.items()}
    protocols = parse_protocols(str(values.get("listener.security.protocol.map", "")))
    if not all(_is_simple(name, endpoints, protocols) for name, endpoints in found.items()):
        return given
    settings: dict[str, Any] = {}
    for name, (endpoint,) in found.items():
        is_advertised = name != "listeners"
        address = endpoint.host or ("" if is_advertised else "0.0.0.0"), endpoint.port
        parts = zip(LISTENERS[name], address, strict=True)
        settings.update({part: value for part, value in parts if part not in values and value != ""})
    return settings


def _is_simple(name: str, endpoints: Sequence[Endpoint], protocols: Mapping[str, SecurityProtocol]) -> bool:
    """Return whether host and port can express the listeners."""
    if len(endpoints) != 1:
        return False
    protocol = protocols.get(endpoints[0].name, SecurityProtocol.PLAINTEXT)
    is_usual_name = name != "listeners" or endpoints[0].name == CLIENT_LISTENER
    return is_usual_name and protocol is SecurityProtocol.PLAINTEXT


def _in_ms(name: str, value: Any, unit_ms: int) -> int:
    try:
        count = int(str(value))
    except ValueError:
        raise ConfigurationError(f"{name} is {value!r}; it must be a whole number") from None
    return count * unit_ms if count > 0 else count
