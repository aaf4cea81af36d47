"""The response that belongs to a request.

Both are declared in one module, so who has the request needs no list of all APIs (`apis`), whose import takes longer
than anything else that a client of a few calls does.
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
