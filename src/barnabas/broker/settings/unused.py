"""Kafka's settings of brokers and groups that have no effect here, but can be changed while the broker runs.

Tools set them and must not fail, so values are checked as Kafka does, kept and shown. Some are here because they are
the defaults of topics' settings that have no effect either.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.broker.settings.rules import FLAG, LONG_MAX, Rule, number, small, text, whole

NO_EFFECT = "Known from Kafka, and kept without effect."


class UnusedSetting(NamedTuple):
    """A setting's name, its values, and Kafka's default."""

    name: str
    rule: Rule
    default: str


_EVER = str(LONG_MAX)
_DAY_MS = str(24 * 3600 * 1000)

UNUSED_BROKER_SETTINGS: dict[str, UnusedSetting] = {
    setting.name: setting
    for setting in (
        UnusedSetting("background.threads", small(1), "10"),
        UnusedSetting("compression.gzip.level", small(-1, 9), "-1"),
        UnusedSetting("compression.lz4.level", small(1, 17), "9"),
        UnusedSetting("compression.zstd.level", small(-131072, 22), "3"),
        UnusedSetting("follower.replication.throttled.rate", whole(), _EVER),
        UnusedSetting("leader.replication.throttled.rate", whole(), _EVER),
        UnusedSetting("log.local.retention.bytes", whole(-2), "-2"),
        UnusedSetting("log.local.retention.ms", whole(-2), "-2"),
        UnusedSetting("log.preallocate", FLAG, "false"),
        UnusedSetting("log.roll.jitter.ms", whole(), "0"),
        UnusedSetting("max.connection.creation.rate", small(), "2147483647"),
        UnusedSetting("num.io.threads", small(1), "8"),
        UnusedSetting("num.network.threads", small(1), "3"),
        UnusedSetting("num.recovery.threads.per.data.dir", small(1), "2"),
        UnusedSetting("num.replica.fetchers", small(1), "1"),
        UnusedSetting("producer.id.expiration.ms", small(1), _DAY_MS),
        UnusedSetting("replica.alter.log.dirs.io.max.bytes.per.second", whole(), _EVER),
        UnusedSetting("sasl.kerberos.kinit.cmd", text(), "/usr/bin/kinit"),
        UnusedSetting("sasl.kerberos.min.time.before.relogin", whole(), "60000"),
        UnusedSetting("sasl.kerberos.ticket.renew.jitter", number(), "0.05"),
        UnusedSetting("sasl.kerberos.ticket.renew.window.factor", number(), "0.8"),
        UnusedSetting("unclean.leader.election.enable", FLAG, "false"),
    )
}
"""Settings of brokers, by name."""

GROUP_SETTINGS: dict[str, UnusedSetting] = {
    setting.name: setting
    for setting in (
        UnusedSetting("consumer.heartbeat.interval.ms", small(5_000, 15_000), "5000"),
        UnusedSetting("consumer.session.timeout.ms", small(45_000, 60_000), "45000"),
    )
}
"""Settings of groups (KIP-848), by name: they are for members of the next-generation protocol, which is not served.
The bounds are Kafka's defaults of `group.consumer.min.session.timeout.ms` and its kin."""
