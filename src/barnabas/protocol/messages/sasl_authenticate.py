"""SaslAuthenticate (key 36): exchange messages of a SASL mechanism (KIP-152).

Version 1 adds the lifetime of the session (KIP-368), version 2 is flexible.
"""

from __future__ import annotations

from barnabas.protocol.declare import BYTES, INT16, INT64, STRING, field, message, nullable


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: bytes = field(BYTES, secret=True)


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING))
    auth_bytes: bytes = field(BYTES, secret=True)
    session_lifetime_ms: int = field(INT64, since=1, default=0, ignorable=True)
