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

The names of the settings are Kafka's, and so are the defaults unless noted otherwise. {LONG_MAX} means "no limit".
`python tools/settings_reference.py` generates this page from the declarations in `src/barnabas/broker/settings/`.

A topic setting can have a value at several levels. The broker uses the first level that has a value:

1. the topic;
2. this broker (dynamic value);
3. all brokers (dynamic value);
4. the broker's flags, environment or settings file;
5. the default.

`barnabas config show topic clicks` shows the value of each setting and its source.

    barnabas config set topic clicks retention.ms=86400000
    barnabas config set broker 0 log.retention.ms=86400000
    barnabas config set broker all log.retention.ms=86400000

Dynamic values are stored in the metadata store (`/config/topics/<topic>`, `/config/brokers/<id>`,
`/config/brokers/<default>`, `/config/groups/<group>`). The broker that receives a change applies it before it responds,
also to existing topics. Other brokers apply a value for all brokers when they receive the change notification.

Some of Kafka's settings have no effect in Barnabas; the tables mark them. The broker validates, stores and shows them,
so that tools that set them work. It rejects values that it cannot satisfy, such as `remote.storage.enable=true`.
"""

OF_KAFKA = f"""\
A broker accepts Kafka's settings file unchanged, as `server.properties` or in TOML: `barnabas up --config FILE`. A file
with the extension `.properties` has the format of Java's properties files: comments, continued lines, and escapes such
as `\\u00e9`. `barnabas up -X NAME=VALUE` sets the same settings by the same names.

- The broker translates these names: {_names(OTHER_NAMES)}, {_names(OTHER_UNITS)}, {_names(LISTENERS)}.
- Settings of KRaft (`process.roles`, `controller.quorum.*`, `controller.listener.names`, `metadata.log.*`) have no
  effect, because Barnabas has no controllers. The broker omits the listeners for controllers, and logs an explanation.
  A node that is only a controller (`process.roles=controller`) is an error. A single broker has its own metadata
  store; the brokers of a larger cluster need `zookeeper.connect`, as Kafka up to release 3.9. The `zookeeper.*`
  settings have their meanings in Kafka.
- The broker rejects these settings if their value needs a feature that it does not have: {_names(PROMISES)}.
- The other {len(WITHOUT_EFFECT)} present and former broker settings of Kafka have no effect. If the settings file
  contains one of them, the broker logs this. As dynamic settings, the broker stores and shows them, except secrets, and
  logs that they have no effect. The same applies to the names of topic settings.
- A setting that Kafka does not have is an error.
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
        "## Brokers\n\nDynamic settings can be changed while the broker runs, and take effect immediately.\n\n"
        + _table(("setting", "default", "dynamic", "meaning"), broker_rows),
        "The broker stores these dynamic settings of Kafka, but they have no effect:\n\n"
        + _table(("setting", "default", "values"), unused_rows),
        OF_KAFKA,
        "## Groups\n\nThe broker stores these group settings, but they have no effect. They are for group types\n"
        "that are not supported yet: consumer groups (KIP-848), share groups (KIP-932) and streams groups\n"
        "(KIP-1071). In a classic group, each member sends its own timeouts.\n\n"
        + _table(("setting", "default", "values"), group_rows),
    )
    return "\n".join(sections)


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [titles, ("---",) * len(titles), *rows]
    return "".join(f"| {' | '.join(cell or ' ' for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
