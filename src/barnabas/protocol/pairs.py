"""The name of an API and its response, found from its request.

One module declares both messages of an API, so a client imports the messages that it uses and no others.
"""

from __future__ import annotations

import sys
from typing import Any


def api_name(request: type[Any]) -> str:
    """Return the name of a request's API.

    >>> class HeartbeatRequest: ...
    >>> api_name(HeartbeatRequest)
    'Heartbeat'
    """
    return request.__name__.removesuffix("Request")


_RESPONSES: dict[type[Any], type[Any]] = {}


def response_of(request: type[Any]) -> type[Any]:
    """Return the class of the response to a class of requests."""
    response = _RESPONSES.get(request)
    if response is None:
        response = getattr(sys.modules[request.__module__], f"{api_name(request)}Response")
        _RESPONSES[request] = response
    return response
