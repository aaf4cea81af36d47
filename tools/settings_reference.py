"""Generate docs/reference/settings.md from the declarations of the settings of topics, brokers and groups.

`python tools/settings_reference.py` writes the page; a test checks that the page is up to date.
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

Names and, unless noted otherwise, defaults are Kafka's. This page is generated from the declarations in
`src/barnabas/broker/settings/` by `python tools/settings_reference.py`. {LONG_MAX} means "no limit".

The value of a topic setting is the first of these that exists:

1. the topic's own value;
2. the dynamic value of this broker;
3. the dynamic value of all brokers;
4. the value in the broker's flags, environment or file;
5. the default.

`barnabas config show topic clicks` shows the value and its source.

    barnabas config set topic clicks retention.ms=86400000
    barnabas config set broker 0 log.retention.ms=86400000
    barnabas config set broker all log.retention.ms=86400000

Dynamic values are stored in the metadata store (`/config/topics/<topic>`, `/config/brokers/<id>`,
`/config/brokers/<default>`, `/config/groups/<group>`). A new value is in force when the broker responds, also for
existing topics. Other brokers apply a value for all brokers when they receive the change notification.

Some of Kafka's settings have no effect here. The broker checks, stores and shows them, so that tools that set them
work; the tables mark them. The broker rejects values that it cannot satisfy, such as `remote.storage.enable=true`.
"""

OF_KAFKA = f"""\
A settings file of Kafka can be used unchanged, as `server.properties` or in TOML.

- The broker translates these names: {_names(OTHER_NAMES)}, {_names(OTHER_UNITS)}, {_names(LISTENERS)}. It supports one
  listener for clients.
- The broker rejects these settings if their value needs a feature that it does not have: {_names(PROMISES)}. It also
  rejects listeners with TLS or SASL.
- The other {len(WITHOUT_EFFECT)} names of present and former settings of Kafka's brokers have no effect. The broker
  logs those in its file. They may also be set as dynamic settings: the broker stores and shows them, except secrets,
  and logs that they have no effect. The same applies to the names of topic settings.
- A name that Kafka does not have is an error.
"""


def page() -> str:
    topic_rows = (
        (
            f"`{s.name}`",
            s.default,
            s.rule.description,
            f"`{s.broker_setting}`" if s.broker_setting else "",
            s.documentation,
        )
        for s in TOPIC_SETTINGS.values()
    )
    broker_rows = (
        (f"`{each.name}`", each.value, "" if each.read_only else "yes", each.documentation)
        for each in BrokerSettings(BrokerConfig()).describe()
        if each.name not in UNUSED_BROKER_SETTINGS
    )
    unused_rows = ((f"`{s.name}`", s.default, s.rule.description) for s in UNUSED_BROKER_SETTINGS.values())
    group_rows = ((f"`{s.name}`", s.default, s.rule.description) for s in GROUP_SETTINGS.values())
    assert set(UNUSED_BROKER_SETTINGS) <= set(DYNAMIC_RULES)
    sections = (
        HEAD,
        "## Topics\n\n" + _table(("setting", "default", "values", "broker setting", "meaning"), topic_rows),
        "## Brokers\n\nDynamic settings can be changed while the broker runs and take effect immediately.\n\n"
        + _table(("setting", "default", "dynamic", "meaning"), broker_rows),
        "Dynamic settings of Kafka that are stored without effect:\n\n"
        + _table(("setting", "default", "values"), unused_rows),
        OF_KAFKA,
        "## Groups\n\nThese settings are stored without effect. They apply to group types that are not supported yet:\n"
        "consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071). In a classic group, each\n"
        "member sends its own timeouts.\n\n" + _table(("setting", "default", "values"), group_rows),
    )
    return "\n".join(sections)


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [titles, ("---",) * len(titles), *rows]
    return "".join(f"| {' | '.join(cell or ' ' for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
