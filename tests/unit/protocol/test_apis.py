"""APIs follow from the declared messages."""

from __future__ import annotations

import pkgutil

from barnabas.protocol import messages
from barnabas.protocol.apis import api_of, declared_apis
from barnabas.protocol.declare import message_of
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

DATA_WITHIN_MESSAGES = {"consumer_protocol", "group_records"}
"""The modules that declare no API."""


def test_api_has_the_key_name_response_and_versions_of_its_request() -> None:
    assert api_of(HeartbeatRequest) == (12, "Heartbeat", HeartbeatRequest, HeartbeatResponse, range(5))


def test_each_declared_api_stands_under_its_key() -> None:
    apis = declared_apis()
    assert list(apis) == sorted(apis)
    for key, api in apis.items():
        assert (key, api) == (message_of(api.request).api_key, api_of(api.request))
        assert message_of(api.response) == message_of(api.request)


def test_each_module_of_messages_declares_one_api() -> None:
    modules = [api.request.__module__.rpartition(".")[2] for api in declared_apis().values()]
    assert sorted(modules) == sorted(
        {module.name for module in pkgutil.iter_modules(messages.__path__)} - DATA_WITHIN_MESSAGES
    )
