"""The brokers that a command connects to, and the client settings for these connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.serialization.registry_settings import RegistrySettings

DEFAULT_BOOTSTRAP = "localhost:9092"


@dataclass(frozen=True, slots=True)
class Connection:
    """The addresses of brokers, and the client settings of the profile and of `-X`.

    :param properties: settings of clients by Kafka's names. They may contain secrets.
    :param registry: the settings of the schema registry, without the prefix `schema.registry.`. The same applies.
    """

    bootstrap: str = DEFAULT_BOOTSTRAP
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)

    def registry_target(self, url: str | None) -> RegistrySettings | None:
        """Return the settings of the schema registry; None if no URL is known.

        :param url: the URL that overrides the URL of the profile.
        :raises ConfigurationError: a setting is not valid.
        """
        address = url or self.registry.get("url")
        if address is None:
            return None
        from barnabas.serialization.registry_settings import RegistrySettings

        return RegistrySettings.of(address, self.registry_options)

    @property
    def registry_options(self) -> dict[str, str]:
        """The settings of the schema registry without its URL."""
        return {name: value for name, value in self.registry.items() if name != "url"}

    def settings(self, **own: object) -> dict[str, Any]:
        """Return the settings of a producer or a consumer. The user's settings override `own`.

        :param own: settings of the command, with names in snake_case.
        """
        named = {name.replace("_", "."): value for name, value in own.items()}
        return {**named, **self.properties, "bootstrap.servers": self.bootstrap}

    @property
    def admin_settings(self) -> dict[str, Any]:
        """The settings of an admin client, without those that only producers or consumers have."""
        from barnabas.client.config import settings_of_all_clients

        return settings_of_all_clients(self.settings())
