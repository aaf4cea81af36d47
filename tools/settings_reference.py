"""Writes docs/reference/settings.md from the tables of settings: those of topics, of brokers and of groups.

`python tools/settings_reference.py` writes it; a test compares what stands there with what would be written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from barnabas.broker.settings.in_force import DYNAMIC_RULES, BrokerSettings
from barnabas.broker.settings.kafka_names import LISTENERS, OTHER_UNITS, PROMISES, WITHOUT_EFFECT
from barnabas.broker.settings.rules import LONG_MAX
from barnabas.broker.settings.static import OTHER_NAMES, BrokerConfig
from barnabas.broker.settings.topic_table import TOPIC_SETTINGS
from barnabas.broker.settings.unused import GROUP_SETTINGS, UNUSED_BROKER_SETTINGS


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


PAGE = Path(__file__).parent.parent / "docs" / "reference" / "settings.md"

HEAD = f"""\
# Settings

Names and, where nothing else is said, defaults are Kafka's. This page is generated from the tables in
`src/barnabas/broker/`; `python tools/settings_reference.py` writes it anew. {LONG_MAX} stands for "no limit".

A topic's setting comes from the topic; if that says nothing, from what was changed of this broker while it runs; then
from what was changed of all brokers; then from the broker's file, environment and flags; then it is the default.
`barnabas config show topic clicks` tells which.

    barnabas config set topic clicks retention.ms=86400000
    barnabas config set broker 0 log.retention.ms=86400000
    barnabas config set broker all log.retention.ms=86400000

What is changed while the broker runs is kept in the tree (`/config/topics/<topic>`, `/config/brokers/<id>`,
`/config/brokers/<default>`, `/config/groups/<group>`), and is in force when the answer comes, also for topics that
exist already; what was said of all brokers is, on the others, as soon as the tree has told them.

Settings of Kafka's that have no effect here are checked, kept and shown all the same, so that tools which set them
work; they are marked. What a broker of this version could not live up to is refused: `remote.storage.enable=true`.
"""

OF_KAFKA = f"""\
A settings file of Kafka's can be used as it is, in TOML.

- These names are translated: {_names(OTHER_NAMES)}, {_names(OTHER_UNITS)}, {_names(LISTENERS)}. There is one
  listener for clients.
- These names are refused where they ask for what is not there: {_names(PROMISES)}, and listeners with TLS or SASL.
- The other {len(WITHOUT_EFFECT)} names that Kafka's brokers have or had do nothing. The broker logs those in its file.
  Such a name may also be set while the broker runs: the broker keeps and shows it, but for secrets, and logs that it
  has no effect. The same holds for names of topics' settings.
- A name that Kafka does not know either is an error.
"""


def page() -> str:
    """Return the page as it should be."""
    topic_rows = (
        (f"`{s.name}`", s.default, s.rule.told, f"`{s.broker_setting}`" if s.broker_setting else "", s.documentation)
        for s in TOPIC_SETTINGS.values()
    )
    broker_rows = (
        (f"`{each.name}`", each.value, "" if each.read_only else "yes", each.documentation)
        for each in BrokerSettings(BrokerConfig()).describe()
        if each.name not in UNUSED_BROKER_SETTINGS
    )
    unused_rows = ((f"`{s.name}`", s.default, s.rule.told) for s in UNUSED_BROKER_SETTINGS.values())
    group_rows = ((f"`{s.name}`", s.default, s.rule.told) for s in GROUP_SETTINGS.values())
    assert set(UNUSED_BROKER_SETTINGS) <= set(DYNAMIC_RULES)
    sections = (
        HEAD,
        "## Topics\n\n" + _table(("setting", "default", "values", "the broker's", "what it means"), topic_rows),
        "## Brokers\n\nThose that can be changed while the broker runs are in force at once.\n\n"
        + _table(("setting", "default", "while it runs", "what it means"), broker_rows),
        "Known from Kafka, to be changed while the broker runs, and kept without effect:\n\n"
        + _table(("setting", "default", "values"), unused_rows),
        OF_KAFKA,
        "## Groups\n\nFor members of protocols that are not served yet: the next-generation one (KIP-848), share groups"
        " (KIP-932)\nand groups of Kafka Streams (KIP-1071). Kept without effect. In a classic group each member brings"
        " its own timeouts.\n\n" + _table(("setting", "default", "values"), group_rows),
    )
    return "\n".join(sections)


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [titles, ("---",) * len(titles), *rows]
    return "".join(f"| {' | '.join(cell or ' ' for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
