"""Handlers are given the parts of the broker that they name, and nothing else."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import SimpleNamespace

import pytest

from barnabas.broker import handlers, inter_broker
from barnabas.broker.handlers import SERVED
from barnabas.broker.parts import Parts
from barnabas.broker.pipeline.call import ServedApi, serves
from barnabas.protocol.messages.heartbeat import HeartbeatRequest


@pytest.mark.parametrize("served", SERVED.values(), ids=lambda each: each.api.name)
def test_a_handler_asks_for_parts_by_their_name_and_type(served: ServedApi) -> None:
    parameters = inspect.signature(served.function).parameters
    asked = {name: parameters[name].annotation for name in served.parts}
    assert asked == {name: Parts.__annotations__[name] for name in served.parts}


@pytest.mark.parametrize("served", SERVED.values(), ids=lambda each: each.api.name)
def test_request_and_call_come_behind_the_parts(served: ServedApi) -> None:
    names = [*inspect.signature(served.function).parameters][-2:]
    assert names == ["run" if served.runs else "request", "call"]


def test_each_handler_is_in_the_table_of_a_listener() -> None:
    modules = [
        importlib.import_module(each.name) for each in pkgutil.iter_modules(handlers.__path__, f"{handlers.__name__}.")
    ]
    written = [value for module in modules for value in vars(module).values() if isinstance(value, ServedApi)]
    tables = [*SERVED.values(), *inter_broker.SERVED.values()]
    assert [each.function.__name__ for each in written if each not in tables] == []


def test_parts_are_given_once_and_in_their_order() -> None:
    @serves(HeartbeatRequest)
    def heartbeat(scheduler: str, groups: str, request: object, call: object) -> tuple[object, ...]:
        return scheduler, groups, request, call

    bound = heartbeat.bind(SimpleNamespace(groups="groups", scheduler="scheduler"))
    assert bound.handle("request", "call").response == ("scheduler", "groups", "request", "call")
    assert bound.api is heartbeat.api
