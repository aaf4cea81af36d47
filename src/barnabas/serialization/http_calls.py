"""A blocking HTTP request with a timeout and a maximum response size. Each call opens a new connection."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from barnabas.errors import ConfigurationError

if TYPE_CHECKING:
    from barnabas.net.tls import TlsContext


class UntrustedServerError(Exception):
    """The certificate of the server is not accepted. A repetition would not help."""


ANSWER_BYTES_MAX = 64 * 1024 * 1024


def call(
    url: str,
    method: str,
    body: bytes | None,
    headers: Mapping[str, str],
    timeout_s: float,
    tls: TlsContext | None = None,
) -> tuple[int, bytes, Mapping[str, str]]:
    """Send a request. Return the status, body and headers of the response.

    :param url: the URL with scheme, host, path and query.
    :param timeout_s: the timeout of each step (connect, send, each receive), in seconds.
    :param tls: the context of HTTPS connections; None for the CAs of the operating system.
    :raises UntrustedServerError: if the certificate of the server is not accepted.
    :raises OSError: if the request fails, or if the response is larger than 64 MiB.
    """
    parts = urlsplit(url)
    where = parts.netloc.rpartition("@")[2]
    assert parts.hostname is not None
    connection = _connection(parts.scheme, parts.hostname, parts.port, timeout_s, tls)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        connection.request(method, target, body, dict(headers))
        answer = connection.getresponse()
        content = answer.read(ANSWER_BYTES_MAX + 1)
    except http.client.HTTPException as error:
        raise ConnectionError(f"no valid HTTP response from {where}: {error!r}") from error
    except OSError as error:
        if parts.scheme == "https":
            _check_trust(error)
        raise
    finally:
        connection.close()
    if len(content) > ANSWER_BYTES_MAX:
        raise ConnectionError(f"the response from {where} has more than {ANSWER_BYTES_MAX} bytes")
    return answer.status, content, {name.lower(): value for name, value in answer.getheaders()}


def _check_trust(error: OSError) -> None:
    from barnabas.net.tls import is_untrusted, reason_of_failure  # noqa: PLC0415 - only for HTTPS

    if is_untrusted(error):
        raise UntrustedServerError(reason_of_failure(error)) from error


def _connection(
    scheme: str, host: str, port: int | None, timeout_s: float, tls: TlsContext | None
) -> http.client.HTTPConnection:
    if scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    if tls is None:
        return http.client.HTTPSConnection(host, port, timeout=timeout_s)
    # A file that changes at this moment may be incomplete. The last context remains in use.
    with contextlib.suppress(ConfigurationError):
        tls.reload()
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=tls.current)
