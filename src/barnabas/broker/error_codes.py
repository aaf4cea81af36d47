"""Maps exceptions of the broker to error codes of Kafka's protocol."""

from __future__ import annotations

from barnabas.errors import (
    ApiError,
    BarnabasError,
    ClosedError,
    CoordinationError,
    CorruptBatchError,
    ErrorCode,
    StorageError,
    UnsupportedVersionError,
)


def error_code(error: BarnabasError | None) -> ErrorCode:
    """Return the error code of an exception, or NONE if there is no exception."""
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, ApiError):
        return error.code
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR


def error_message(error: BarnabasError | None) -> str | None:
    """Return the error message of an exception for a response, or None if there is no exception."""
    if error is None:
        return None
    return error.message if isinstance(error, ApiError) else str(error)


_CODES: dict[type[BarnabasError], ErrorCode] = {
    # The topic is being deleted, or the broker is stopping. Clients refresh their metadata after this error code.
    ClosedError: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    CorruptBatchError: ErrorCode.CORRUPT_MESSAGE,
    StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
    CoordinationError: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    UnsupportedVersionError: ErrorCode.UNSUPPORTED_VERSION,
}
