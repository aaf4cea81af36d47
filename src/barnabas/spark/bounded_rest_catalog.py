"""pyiceberg's REST catalog with time limits for each request, including the requests for OAuth2 tokens.

The properties have the names of Iceberg's Java client, so that a catalog in Spark's settings has the same limits.
"""

from __future__ import annotations

from typing import Any

import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager, OAuth2AuthManager, OAuth2TokenProvider

from barnabas.clock import SYSTEM_CLOCK
from barnabas.spark.bounded_catalogs import milliseconds

CONNECT_MS = "rest.client.connection-timeout-ms"
READ_MS = "rest.client.socket-timeout-ms"
CONNECT_MS_DEFAULT = 10_000
READ_MS_DEFAULT = 30_000
Limits = tuple[float, float]
"""The longest wait for a connection, and for each part of an answer, in seconds."""


class BoundedRestCatalog(RestCatalog):
    """A REST catalog whose requests have time limits."""

    def _create_session(self) -> requests.Session:
        session = super()._create_session()
        limit(session, self._limits())
        manager = self._auth_manager
        if isinstance(manager, OAuth2AuthManager):
            manager.token_provider = _BoundedTokenProvider(manager.token_provider, self._limits())
        return session

    def _create_legacy_oauth2_auth_manager(self, session: requests.Session) -> AuthManager:
        limit(session, self._limits())  # this manager asks for a token at once
        return super()._create_legacy_oauth2_auth_manager(session)

    def _limits(self) -> Limits:
        connect_ms = milliseconds(self.properties, CONNECT_MS, CONNECT_MS_DEFAULT)
        return connect_ms / 1000, milliseconds(self.properties, READ_MS, READ_MS_DEFAULT) / 1000


def limit(session: requests.Session, limits: Limits) -> None:
    """Give all requests of a session time limits, also those of adapters that are mounted later."""
    send = session.send

    def send_with_limits(request: requests.PreparedRequest, **options: Any) -> requests.Response:
        if options.get("timeout") is None:
            options["timeout"] = limits
        return send(request, **options)

    session.send = send_with_limits  # type: ignore[method-assign]


class _BoundedTokenProvider(OAuth2TokenProvider):
    """pyiceberg's token provider, which sends its requests without a session."""

    def __init__(self, provider: OAuth2TokenProvider, limits: Limits) -> None:
        super().__init__(
            provider.client_id,
            provider.client_secret,
            provider.token_url,
            provider.scope,
            provider.refresh_margin,
            provider.expires_in,
        )
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
