"""SaslAuthenticate, versions 0 to 2: the messages of a SASL mechanism (KIP-152), and the lifetime of the session
(version 1, KIP-368).

A failed authentication has one error text, so that a client does not learn whether a user exists.
"""

from __future__ import annotations

from barnabas.broker.pipeline.call import Call, serves
from barnabas.errors import ApiError, AuthenticationError, ErrorCode
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

FAILED = "Authentication failed: the credentials are not valid."


@serves(SaslAuthenticateRequest, ends_with_client=True, entries_max=1, bytes_max=65_536)
async def sasl_authenticate(request: SaslAuthenticateRequest, call: Call) -> SaslAuthenticateResponse:
    """Process a message of the mechanism; admit the client when the mechanism is complete."""
    connection = call.connection
    authentication = connection.authentication
    if authentication is None:
        connection.link.close_after_response("the client sent SaslAuthenticate on a listener without SASL")
        return _error(ErrorCode.ILLEGAL_SASL_STATE, "this listener does not use SASL")
    try:
        response, lifetime_ms = await authentication.step(bytes(request.auth_bytes))
    except ApiError as error:
        connection.link.close_after_response("")
        return _error(error.code, error.reason)
    except AuthenticationError:
        connection.link.close_after_response("")
        return _error(ErrorCode.SASL_AUTHENTICATION_FAILED, FAILED)
    connection.note_authentication(authentication)
    return SaslAuthenticateResponse(
        error_code=ErrorCode.NONE, error_message=None, auth_bytes=response, session_lifetime_ms=lifetime_ms
    )


def _error(code: ErrorCode, message: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=message, auth_bytes=b"", session_lifetime_ms=0)
