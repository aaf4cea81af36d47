"""Generate two files from the declarations of client settings in `src/barnabas/client/config.py`:

- `src/barnabas/client/setting_types.py`: the settings as keyword arguments, for type checkers and editors;
- `docs/reference/client-settings.md`: the reference page.

`python tools/client_settings.py` writes both files; a test compares them with the declarations.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

from barnabas.client.config import ClientConfig, ConsumerConfig, ProducerConfig

ROOT = Path(__file__).parent.parent
TYPES = ROOT / "src" / "barnabas" / "client" / "setting_types.py"
PAGE = ROOT / "docs" / "reference" / "client-settings.md"

ARGUMENTS_OF_THEIR_OWN = frozenset({"group"})
"""The settings that are named parameters of the constructor, and not part of the keyword arguments."""

CLIENTS = (
    (
        ClientConfig,
        "ClientSettings",
        "Every client",
        "The settings of every client, and all settings of `Admin` and `AsyncAdmin`.",
    ),
    (ProducerConfig, "ProducerSettings", "Producers", "The settings of `Producer` and `AsyncProducer`."),
    (
        ConsumerConfig,
        "ConsumerSettings",
        "Consumers",
        "The settings of `Consumer` and `AsyncConsumer`, without `group`.",
    ),
)

TYPES_HEAD = '''\
"""The settings of the clients as keyword arguments, for type checkers and editors.

`python tools/client_settings.py` generates this file from the declarations in `config.py`; edit the declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypedDict
'''

PAGE_HEAD = """\
# Settings of the clients

Pass a client setting as a keyword argument (`linger_ms=5`), or in a dict with Kafka's dotted name (`{"linger.ms": 5}`).
Values may be strings, as in a properties file. `python tools/client_settings.py` generates this page from the
declarations in `src/barnabas/client/config.py`.
"""


def own_fields(config: type[ClientConfig]) -> list[dataclasses.Field[object]]:
    """Return the settings that only this client has, in addition to the settings of all clients."""
    common = set() if config is ClientConfig else {field.name for field in dataclasses.fields(ClientConfig)}
    return [field for field in dataclasses.fields(config) if field.name not in common]


def types() -> str:
    parts = [TYPES_HEAD]
    for config, name, _title, meaning in CLIENTS:
        base = "TypedDict" if config is ClientConfig else "ClientSettings"
        lines = [f"\n\nclass {name}({base}, total=False):", f'    """{meaning}"""', ""]
        for field in own_fields(config):
            if field.name not in ARGUMENTS_OF_THEIR_OWN:
                lines.append(f"    {field.name}: {field.metadata['rule'].argument_type}")
        parts.append("\n".join(lines) + "\n")
    return "".join(parts)


def page() -> str:
    parts = [PAGE_HEAD]
    for config, _name, title, _meaning in CLIENTS:
        parts.append(f"\n## {title}\n\n| setting | default | values | what it means |\n| --- | --- | --- | --- |\n")
        parts += [f"| {' | '.join(_row(field))} |\n" for field in own_fields(config)]
    return "".join(parts)


def _row(field: dataclasses.Field[object]) -> Iterator[str]:
    rule, meaning, aliases = (field.metadata[key] for key in ("rule", "meaning", "aliases"))
    yield f"`{field.name}`"
    yield _shown(field.default, rule.argument_type)
    yield rule.values
    others = ", ".join(f"`{alias}`" for alias in aliases)
    yield f"{meaning} Also {others}." if others else meaning


def _shown(default: object, argument_type: str) -> str:
    if default is None or default == "":
        return " "
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return ", ".join(f"{part[0]}:{part[1]}" if isinstance(part, tuple) else str(part) for part in default)
    return "all" if default == -1 and argument_type.startswith('Literal["all"') else str(default)


def main() -> int:
    TYPES.write_text(types(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
