"""A blocking HTTP request with a timeout and a maximum response size. Each call opens a new connection."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from urllib.parse import urlsplit

ANSWER_BYTES_MAX = 64 * 1024 * 1024


def call(
    url: str, method: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
) -> tuple[int, bytes, Mapping[str, str]]:
    """Send a request. Return the status, body and headers of the response.

    :param url: the URL with scheme, host, path and query.
    :param timeout_s: the timeout of each step (connect, send, each receive), in seconds.
    :raises OSError: if the request fails, or if the response is larger than 64 MiB.
    """
    parts = urlsplit(url)
    where = parts.netloc.rpartition("@")[2]
    assert parts.hostname is not None
    make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = make(parts.hostname, parts.port, timeout=timeout_s)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        connection.request(method, target, body, dict(headers))
        answer = connection.getresponse()
        content = answer.read(ANSWER_BYTES_MAX + 1)
    except http.client.HTTPException as error:
        raise ConnectionError(f"no valid HTTP response from {where}: {error!r}") from error
    finally:
        connection.close()
    if len(content) > ANSWER_BYTES_MAX:
        raise ConnectionError(f"the response from {where} has more than {ANSWER_BYTES_MAX} bytes")
    return answer.status, content, {name.lower(): value for name, value in answer.getheaders()}
