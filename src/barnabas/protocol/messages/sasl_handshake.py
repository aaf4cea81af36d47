"""SaslHandshake (key 17): choose a SASL mechanism (KIP-43).

After version 0, the client sends the messages of the mechanism as frames without a request header. After version 1, the
client sends them with SaslAuthenticate (KIP-152). No version is flexible.
"""

from __future__ import annotations

from barnabas.protocol.declare import INT16, STRING, array, field, message


@message(api_key=17, versions="0-1")
class SaslHandshakeRequest:
    mechanism: str = field(STRING)


@message(api_key=17, versions="0-1")
class SaslHandshakeResponse:
    error_code: int = field(INT16)
    mechanisms: list[str] = field(array(STRING), default_factory=list)
