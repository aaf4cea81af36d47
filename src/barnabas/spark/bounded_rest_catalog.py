"""pyiceberg's REST catalog with time limits for each request, including the requests for OAuth2 tokens.

The properties have the names of Iceberg's Java client, so that a catalog in Spark's settings has the same limits.

The server and its tables do not choose classes to import, the login, or local files of the client
(`client_properties.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import requests
from pyiceberg.catalog.rest import AUTH, CUSTOM, RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager, OAuth2AuthManager, OAuth2TokenProvider
from pyiceberg.io import FileIO
from pyiceberg.typedef import EMPTY_DICT, Properties
from requests.adapters import BaseAdapter

from barnabas.clock import SYSTEM_CLOCK
from barnabas.spark.catalog_time_limits import milliseconds
from barnabas.spark.client_properties import with_client_properties

CONNECT_MS = "rest.client.connection-timeout-ms"
READ_MS = "rest.client.socket-timeout-ms"
CONNECT_MS_DEFAULT = 10_000
READ_MS_DEFAULT = 30_000
OAUTH2 = "oauth2"
Limits = tuple[float, float]
"""The longest wait for a connection, and for each part of an answer, in seconds."""


class BoundedRestCatalog(RestCatalog):
    """A REST catalog whose requests have time limits.

    `with_client_properties` filters all properties of the server and of its tables before pyiceberg uses them, except
    those of a table that only commits use (`check_location_provider`).
    """

    def __init__(self, name: str, **properties: Any) -> None:
        self._own = with_bounded_login(properties)
        super().__init__(name, **self._own)

    def _fetch_config(self) -> None:
        super()._fetch_config()  # merges the server's properties; afterwards pyiceberg logs in again with them
        self.properties = with_client_properties(self.properties, self._own)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return super()._load_file_io(with_client_properties({**self.properties, **properties}, self._own), location)

    def _create_session(self) -> requests.Session:
        session = super()._create_session()
        limit(session, limits_of(self.properties))
        return session

    def _create_legacy_oauth2_auth_manager(self, session: requests.Session) -> AuthManager:
        limit(session, limits_of(self.properties))  # this manager asks for a token at once
        return super()._create_legacy_oauth2_auth_manager(session)


def limits_of(properties: Mapping[str, Any]) -> Limits:
    """Return the time limits of a catalog.

    :raises ValueError: A limit is no positive number.
    """
    connect_ms = milliseconds(properties, CONNECT_MS, CONNECT_MS_DEFAULT)
    return connect_ms / 1000, milliseconds(properties, READ_MS, READ_MS_DEFAULT) / 1000


def with_bounded_login(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the properties with `BoundedOAuth2AuthManager` instead of pyiceberg's login of type oauth2."""
    login = properties.get(AUTH)
    if not isinstance(login, dict) or login.get("type") != OAUTH2 or "impl" in login:
        return properties
    manager = f"{BoundedOAuth2AuthManager.__module__}.{BoundedOAuth2AuthManager.__qualname__}"
    given = {**login.get(OAUTH2, {}), "limits": limits_of(properties)}
    return {**properties, AUTH: {"type": CUSTOM, "impl": manager, CUSTOM: given}}


def limit(session: requests.Session, limits: Limits) -> None:
    """Give all requests of a session time limits."""
    for prefix, adapter in list(session.adapters.items()):
        if not isinstance(adapter, _BoundedAdapter):
            session.mount(prefix, _BoundedAdapter(adapter, limits))


class _BoundedAdapter(BaseAdapter):
    """Sends requests through another adapter, with time limits."""

    def __init__(self, adapter: BaseAdapter, limits: Limits) -> None:
        super().__init__()
        self._adapter = adapter
        self._limits = limits

    def send(self, request: requests.PreparedRequest, *_others: Any, **options: Any) -> requests.Response:
        return self._adapter.send(request, **{**options, "timeout": options.get("timeout") or self._limits})

    def close(self) -> None:
        self._adapter.close()


class _BoundedTokenProvider(OAuth2TokenProvider):
    """pyiceberg's token provider, which sends its requests without a session."""

    def __init__(self, limits: Limits, **given: Any) -> None:
        super().__init__(**given)
        self._limits = limits

    def _refresh_token(self) -> None:
        form = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        headers = {"Authorization": self._client_secret_header}
        response = requests.post(self.token_url, data=form, headers=headers, timeout=self._limits)
        response.raise_for_status()
        answer = response.json()
        self._token = answer["access_token"]
        expires_in = answer.get("expires_in", self.expires_in)
        if expires_in is None:
            raise ValueError("the token server does not say when the token expires: set expires_in of auth.oauth2")
        self._expires_at = SYSTEM_CLOCK.monotonic() + expires_in - self.refresh_margin


class BoundedOAuth2AuthManager(OAuth2AuthManager):
    """pyiceberg's login of type oauth2, with time limits."""

    def __init__(self, limits: Limits, **given: Any) -> None:
        super().__init__(**given)
        self.token_provider = _BoundedTokenProvider(limits, **given)
