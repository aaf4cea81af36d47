"""Barnabas: a distributed log for log and activity data, speaking Kafka's protocol.

    with barnabas.Producer("localhost:9092") as producer:
        producer.send("clicks", b"/jobs", key=b"member-42")

    with barnabas.Consumer("localhost:9092", group="ctr") as consumer:
        consumer.subscribe("clicks")
        for record in consumer:
            ...

What there is stands in `__init__.pyi`. Each name is loaded when it is first used, so that `import barnabas` costs next
to nothing.
"""

from __future__ import annotations

import functools
import importlib

__version__ = "0.2.0.dev0"


@functools.cache
def _homes() -> dict[str, str]:
    """Return the module of each name that there is."""
    listed = __spec__.loader.get_data(f"{__path__[0]}/__init__.pyi").decode()
    statements = [line.split() for line in listed.splitlines() if line.startswith("from ")]
    return {name: module for _, module, *_, name in statements}


def __getattr__(name: str) -> object:
    if name == "__all__":
        return [*_homes(), "__version__"]
    if name not in _homes():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_homes()[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_homes(), "__version__"])
