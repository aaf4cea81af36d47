"""Kafka's dynamic settings of brokers and groups that have no effect in Barnabas.

Tools that set them must not fail, so the broker validates the values as Kafka does, and stores and describes them. Some
of these settings are defaults of topic settings that have no effect.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.broker.settings.rules import FLAG, LONG_MAX, ConfigType, Rule, number, small, text, whole

NO_EFFECT = "A setting of Kafka, stored without effect."


class UnusedSetting(NamedTuple):
    """A setting that has no effect: its name, its valid values, and Kafka's default."""

    name: str
    rule: Rule
    default: str


_EVER = str(LONG_MAX)
_DAY_MS = str(24 * 3600 * 1000)

_SHARE_OFFSET_RESET = Rule(
    ConfigType.STRING, pattern=r"latest|earliest|by_duration:P(?=[0-9T])([0-9]+D)?(T([0-9]+H)?([0-9]+M)?([0-9.]+S)?)?"
)

UNUSED_BROKER_SETTINGS: dict[str, UnusedSetting] = {
    setting.name: setting
    for setting in (
        UnusedSetting("background.threads", small(1), "10"),
        UnusedSetting("compression.gzip.level", small(-1, 9), "-1"),
        UnusedSetting("compression.lz4.level", small(1, 17), "9"),
        UnusedSetting("compression.zstd.level", small(-131072, 22), "3"),
        UnusedSetting("group.consumer.assignment.interval.ms", small(), "1000"),
        UnusedSetting("group.coordinator.cached.buffer.max.bytes", small(524_288), "1048588"),
        UnusedSetting("group.share.assignment.interval.ms", small(), "1000"),
        UnusedSetting("group.streams.assignment.interval.ms", small(), "1000"),
        UnusedSetting("log.local.retention.bytes", whole(-2), "-2"),
        UnusedSetting("log.local.retention.ms", whole(-2), "-2"),
        UnusedSetting("log.preallocate", FLAG, "false"),
        UnusedSetting("log.roll.jitter.ms", whole(), "0"),
        UnusedSetting("num.io.threads", small(1), "8"),
        UnusedSetting("num.network.threads", small(1), "3"),
        UnusedSetting("num.recovery.threads.per.data.dir", small(1), "2"),
        UnusedSetting("producer.id.expiration.ms", small(1), _DAY_MS),
        UnusedSetting("sasl.kerberos.kinit.cmd", text(), "/usr/bin/kinit"),
        UnusedSetting("sasl.kerberos.min.time.before.relogin", whole(), "60000"),
        UnusedSetting("sasl.kerberos.ticket.renew.jitter", number(), "0.05"),
        UnusedSetting("sasl.kerberos.ticket.renew.window.factor", number(), "0.8"),
    )
}
"""The broker settings that have no effect, by name."""

GROUP_SETTINGS: dict[str, UnusedSetting] = {
    setting.name: setting
    for setting in (
        UnusedSetting("consumer.assignment.interval.ms", small(0, 15_000), "1000"),
        UnusedSetting("consumer.heartbeat.interval.ms", small(5_000, 15_000), "5000"),
        UnusedSetting("consumer.session.timeout.ms", small(45_000, 60_000), "45000"),
        UnusedSetting("share.assignment.interval.ms", small(0, 15_000), "1000"),
        UnusedSetting("share.auto.offset.reset", _SHARE_OFFSET_RESET, "latest"),
        UnusedSetting("share.delivery.count.limit", small(2, 10), "5"),
        UnusedSetting("share.heartbeat.interval.ms", small(5_000, 15_000), "5000"),
        UnusedSetting("share.isolation.level", text("read_committed", "read_uncommitted"), "read_uncommitted"),
        UnusedSetting("share.partition.max.record.locks", small(100, 4_000), "2000"),
        UnusedSetting("share.record.lock.duration.ms", small(15_000, 60_000), "30000"),
        UnusedSetting("share.renew.acknowledge.enable", FLAG, "true"),
        UnusedSetting("share.session.timeout.ms", small(45_000, 60_000), "45000"),
        UnusedSetting("streams.assignment.interval.ms", small(0, 15_000), "1000"),
        UnusedSetting("streams.heartbeat.interval.ms", small(5_000, 15_000), "5000"),
        UnusedSetting("streams.initial.rebalance.delay.ms", small(), "3000"),
        UnusedSetting("streams.num.standby.replicas", small(0, 2), "0"),
        UnusedSetting("streams.session.timeout.ms", small(45_000, 60_000), "45000"),
    )
}
"""The group settings that have no effect, by name, as in Kafka 4.3.

They apply to group types that are not supported: consumer groups (KIP-848), share groups (KIP-932) and streams groups
(KIP-1071). The bounds are Kafka's default values of broker settings such as `group.consumer.min.session.timeout.ms`.
Kafka has no settings for classic groups, because their members send their own timeouts.
"""
