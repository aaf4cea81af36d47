"""SaslHandshake, versions 0 and 1: a client chooses a SASL mechanism (KIP-43).

Version 1 continues with SaslAuthenticate (KIP-152). After version 0, the client sends frames without a request header.
"""

from __future__ import annotations

from barnabas.broker.pipeline.call import Call, serves
from barnabas.errors import ApiError, ErrorCode
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@serves(SaslHandshakeRequest, ends_with_client=True, entries_max=1, bytes_max=1_000)
def sasl_handshake(request: SaslHandshakeRequest, call: Call) -> SaslHandshakeResponse:
    """Begin an authentication with a mechanism. An unsupported mechanism ends the connection after the response."""
    connection = call.connection
    authentication = connection.authentication
    if authentication is None:
        connection.link.close_after_response("the client began a SASL authentication on a listener without SASL")
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        authentication.begin(request.mechanism, raw=call.version == 0)
    except ApiError as error:
        connection.link.close_after_response("")
        return SaslHandshakeResponse(error_code=error.code, mechanisms=authentication.mechanisms)
    return SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=authentication.mechanisms)
