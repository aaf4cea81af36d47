"""The address of a schema registry, and the credentials and certificates for it.

The settings are texts, so Spark sends them to executors. A secret may name its source instead
(`barnabas.security.secret_sources`): `${file:PATH}`, `${env:NAME}` or `${command:PROGRAM ARGUMENTS}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from barnabas.errors import ConfigurationError
from barnabas.security.secret_sources import names_source

PREFIX = "schema.registry."
"""The prefix of these settings in profiles and in `-X`."""
ALIASES = {
    "bearer_auth_token": "token",
    "ssl_ca_location": "ssl_cafile",
    "ssl_truststore_location": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_keystore_location": "ssl_certfile",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_password": "ssl_password",
}
"""The names of Confluent's clients, and those of this module."""
USER_INFO = "basic_auth_user_info"
"""Confluent's name for `user:password`."""
SECRETS = frozenset({"password", "token", "ssl_password", USER_INFO})


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """The settings of a client of a registry. The `repr` contains no secret.

    :param url: the URL, or several URLs separated by commas. A URL may contain a user and a password.
    :param password, token, ssl_password: secrets, or their sources.
    :param ssl_cafile: a PEM file with the trusted CAs; None for those of the operating system.
    :param ssl_certfile, ssl_keyfile: PEM files with the certificate of the client, and its key.
    """

    url: str = field(repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.username is None) != (self.password is None):
            raise ConfigurationError("a schema registry needs both a username and a password, or neither")
        if self.username is not None and self.token is not None:
            raise ConfigurationError("give a schema registry a username and a password, or a token, but not both")

    @classmethod
    def of(cls, url: str, options: Mapping[str, str]) -> RegistrySettings:
        """Return the settings with these names, with dots or underscores.

        :raises ConfigurationError: a setting does not exist, or contradicts another one.

        >>> RegistrySettings.of("https://registry:8081", {"username": "alice", "password": "${env:PASSWORD}"})
        RegistrySettings(username='alice', ssl_cafile=None, ssl_certfile=None, ssl_keyfile=None)
        """
        known = {each.name for each in fields(cls)} - {"url"}
        found: dict[str, str] = {}
        for given, value in options.items():
            name = _name_of(given)
            if name == USER_INFO:
                if names_source(value):
                    raise ConfigurationError(f"{given} cannot name a source; set username and password instead")
                found["username"], _, found["password"] = value.partition(":")
            elif name in known:
                found[name] = value
            else:
                names = ", ".join(sorted({*known, USER_INFO}))
                raise ConfigurationError(f"{given!r} is not a setting of a schema registry; known are {names}")
        return cls(url, **found)


RegistryTarget = str | RegistrySettings
"""The URL of a registry, or its settings."""


def _name_of(given: str) -> str:
    name = given.replace(".", "_")
    return ALIASES.get(name, name)


def is_secret(name: str, value: str) -> bool:
    """Return whether a setting, without the prefix, can contain a secret.

    >>> is_secret("basic.auth.user.info", "a:b"), is_secret("url", "http://a:b@host"), is_secret("username", "a")
    (True, True, False)
    """
    return _name_of(name) in SECRETS or (name == "url" and "@" in value)


def without_user(url: str) -> str:
    """Return URLs without users and passwords, for errors and log lines.

    >>> without_user("https://me:p@ss@host:8081/a, http://b"), without_user("me:secret@host")
    ('https://host:8081/a, http://b', 'host')
    """
    return ",".join(re.sub(r"^(\s*(?:[a-zA-Z]+://)?).*@", r"\1", each) for each in url.split(","))
