"""A setting as administrators see it: its value, and where that comes from (KIP-226)."""

from __future__ import annotations

import enum
from typing import NamedTuple

from barnabas.broker.settings.rules import ConfigType


class ConfigSource(enum.IntEnum):
    """Where the value of a setting comes from (KIP-226)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Synonym(NamedTuple):
    """One place where a setting's value may come from, the strongest first."""

    name: str
    value: str
    source: ConfigSource


class DescribedSetting(NamedTuple):
    """A setting with its value in force; the first synonym is where it comes from."""

    name: str
    kind: ConfigType
    documentation: str
    synonyms: tuple[Synonym, ...]
    read_only: bool

    @property
    def value(self) -> str:
        return self.synonyms[0].value

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source
