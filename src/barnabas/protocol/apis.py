"""The APIs, derived from the declarations in `barnabas.protocol.messages`."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from barnabas.protocol import messages
from barnabas.protocol.declare import MessageSpec, api_name, message_of, response_of


class Api(NamedTuple):
    """One API of the protocol.

    :ivar versions: the declared versions.
    """

    key: int
    name: str
    request: type[Any]
    response: type[Any]
    versions: range


def api_of(request: type[Any]) -> Api:
    """Return the API of a request class."""
    spec = message_of(request)
    assert spec.api_key is not None, f"{request.__name__} has no API key"
    cls: type = request
    return Api(spec.api_key, api_name(request), request, response_of(cls), spec.versions)


@functools.cache
def declared_apis() -> Mapping[int, Api]:
    """Import all modules of `barnabas.protocol.messages`; return the APIs in the order of their keys."""
    found: dict[int, Api] = {}
    for module_info in pkgutil.iter_modules(messages.__path__, f"{messages.__name__}."):
        module = importlib.import_module(module_info.name)
        for value in vars(module).values():
            if _is_request(value) and value.__module__ == module.__name__:
                api = api_of(value)
                assert api.key not in found, f"{api.name} and {found[api.key].name} have the same key"
                found[api.key] = api
    return MappingProxyType(dict(sorted(found.items())))


def _is_request(value: object) -> bool:
    if not isinstance(value, type) or not value.__name__.endswith("Request"):
        return False
    spec = getattr(value, "__message__", None)
    return isinstance(spec, MessageSpec) and spec.api_key is not None
