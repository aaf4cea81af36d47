"""The key set (JWKS) that verifies the tokens of OAUTHBEARER, from a file or over HTTPS.

The operator names the URL in the settings; no URL ever comes from a client. The broker reads the key set at its start,
at intervals, and when a token names an unknown key. While the source is unreachable, the last keys remain in use. A
broker that has never read the keys refuses all tokens.
"""

from __future__ import annotations

import logging
import threading
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import NamedTuple
from urllib.parse import urlsplit

from barnabas.errors import ConfigurationError
from barnabas.extras import require
from barnabas.log_lines import LogEvent, event
from barnabas.security.jwt import KEY_SET_BYTES_MAX, JwtValidator, parse_key_set

log = logging.getLogger(__name__)

TIMEOUT_S = 5.0
UNKNOWN_KEY_PAUSE_S = 10.0
"""The minimum time between two reads that unknown keys cause."""


class TokenChecks(NamedTuple):
    """The required properties of tokens."""

    issuer: str
    audiences: tuple[str, ...]
    clock_skew_s: int
    principal_claim: str


class TokenKeys:
    """The current key set. Any thread may read it; a thread of its own fetches it.

    :param url: an `https://` or `file://` URL.
    :param refresh_s: the interval of the reads in seconds.
    :param now_s: returns monotonic seconds.
    :param checks: the required properties of tokens.
    :raises ConfigurationError: the URL has another scheme, or a check is not configured.
    :raises MissingExtraError: the package joserfc is not installed.
    """

    def __init__(self, url: str, refresh_s: float, now_s: Callable[[], float], checks: TokenChecks) -> None:
        if not checks.issuer or not checks.audiences:
            raise ConfigurationError(
                "OAUTHBEARER needs sasl.oauthbearer.expected.issuer and sasl.oauthbearer.expected.audience: without"
                " them, the broker would accept tokens for other services"
            )
        require("joserfc.jws", "security")
        parts = urlsplit(url)
        if parts.scheme not in {"https", "file"} or (parts.scheme == "file" and parts.netloc not in {"", "localhost"}):
            raise ConfigurationError(
                f"sasl.oauthbearer.jwks.endpoint.url is {url!r}; OAUTHBEARER needs an https:// or a file:// URL"
            )
        self._url = url
        self._refresh_s = refresh_s
        self._now_s = now_s
        self._fetched_s = float("-inf")
        self._due = threading.Event()
        self._is_stopping = False
        self._thread: threading.Thread | None = None
        self._checks = checks
        self.validator: JwtValidator | None = None
        """Checks tokens with the last keys that could be read; None until then."""

    def start(self) -> None:
        """Read the key set now, and later on a thread."""
        self._fetch()
        self._thread = threading.Thread(target=self._run, name="token-keys", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; does not wait for a read in progress."""
        self._is_stopping = True
        self._due.set()

    def note_unknown_key(self) -> None:
        """Read the key set soon, unless that has just happened: any client can send a token with an unknown key."""
        if self._now_s() - self._fetched_s >= UNKNOWN_KEY_PAUSE_S:
            self._due.set()

    def _run(self) -> None:
        while not self._is_stopping:
            self._due.wait(self._refresh_s if self.validator is not None else UNKNOWN_KEY_PAUSE_S)
            self._due.clear()
            if not self._is_stopping:
                self._fetch()

    def _fetch(self) -> None:
        self._fetched_s = self._now_s()
        try:
            with _OPENER.open(self._url, timeout=TIMEOUT_S) as response:
                keys = parse_key_set(response.read(KEY_SET_BYTES_MAX + 1))
            checks = self._checks
            self.validator = JwtValidator(
                keys,
                issuer=checks.issuer,
                audience=checks.audiences,
                clock_skew_s=checks.clock_skew_s,
                principal_claim=checks.principal_claim,
            )
        except (OSError, HTTPException, ValueError, ConfigurationError) as error:
            state = "tokens are refused until then" if self.validator is None else "the last keys remain in use"
            extra = event(LogEvent.KEYS_NOT_READ)
            message = "cannot read the key set from %s: %s; %s"
            log.error(message, self._url, error, state, extra=extra)  # noqa: TRY400 - the reason is clear


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it could lead to plain HTTP or to another host."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER = urllib.request.OpenerDirector()
for _handler in (
    urllib.request.HTTPSHandler(),
    urllib.request.FileHandler(),
    urllib.request.HTTPErrorProcessor(),
    urllib.request.HTTPDefaultErrorHandler(),
    _NoRedirects(),
):
    _OPENER.add_handler(_handler)
