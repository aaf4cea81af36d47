"""The settings of a console."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.addresses import bare_host, host_port
from barnabas.console.tables import Tables
from barnabas.errors import ConfigurationError
from barnabas.security.http_settings import OPEN, HttpSecurity

ALL_ADDRESSES = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class ConsoleConfig:
    """The settings of a console.

    :param settings: client settings under Kafka's names. With SASL, users sign in with names and passwords of their
        own, and the console does not use the user name in these settings.
    :param allow_changes: True if the pages may change the cluster.
    :param security: TLS of the pages.
    :param hosts: further host names under which browsers reach the console.
    :param tables: the tables of topics; None without a warehouse. All users see their counts.
    :param registry: the URL of a schema registry; None without one.
    :param registry_settings: the settings of its client. With SASL, the user's name and password replace those in it.
    :param source: client settings of the cluster from which topics are mirrored; None without one. All users see the
        counts of its topics.
    """

    bootstrap: str
    host: str = "127.0.0.1"
    port: int = 8082
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_changes: bool = False
    security: HttpSecurity = OPEN
    hosts: tuple[str, ...] = ()
    registry: str | None = field(default=None, repr=False)
    registry_settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    tables: Tables | None = field(default=None, repr=False)
    source: Mapping[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "host", bare_host(self.host) if self.host else "")
        except ValueError as error:
            raise ConfigurationError(f"--host: {error}") from None
        self.security.check(f"the console at {host_port(self.host or ALL_ADDRESSES, self.port)}", self.host)

    @property
    def signs_in(self) -> bool:
        """True if each user signs in, because the brokers authenticate users with passwords."""
        return self.settings.get("security.protocol", "").upper().startswith("SASL")

    def settings_of(self, user: str, password: str) -> dict[str, str]:
        """Return the client settings of a signed-in user."""
        return {**self.settings, "sasl.username": user, "sasl.password": password}
