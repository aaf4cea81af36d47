"""The tree of errors, and what programs that know Python's own errors see of it."""

from __future__ import annotations

import builtins
import pickle
import re
from pathlib import Path

import pytest

import barnabas
from barnabas import errors
from barnabas.errors import ApiError, BarnabasError, DisconnectedError, ErrorCode, Failure, TimedOutError

ROOT = Path(__file__).parents[2]


def public_errors():
    found = (getattr(barnabas, name) for name in barnabas.__all__)
    return [each for each in found if isinstance(each, type) and issubclass(each, BaseException)]


def test_all_errors_have_one_root():
    declared = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, BaseException)]
    assert all(issubclass(each, BarnabasError) for each in [*declared, *public_errors()])


def test_the_documented_tree_is_the_one_that_there_is():
    text = (ROOT / "docs/how-to/clients.md").read_text(encoding="utf-8")
    tree = re.search(r"```text\n(BarnabasError.*?)```", text, re.DOTALL)[1]
    documented = {}
    path = []
    for line in tree.splitlines():
        name = re.search(r"\w+Error", line)
        depth = name.start() // 3
        path[depth:] = [name[0]]
        documented[name[0]] = path[depth - 1] if depth else None
        for base in re.findall(r"also a `?(\w+)", line):
            assert issubclass(getattr(barnabas, name[0]), getattr(builtins, base))
    names = {each: each.__name__ for each in public_errors()}
    there_are = {
        name: next((names[base] for base in each.__mro__[1:] if base in names), None) for each, name in names.items()
    }
    assert documented == there_are


@pytest.mark.parametrize(("kind", "base"), [(DisconnectedError, ConnectionError), (TimedOutError, TimeoutError)])
def test_lost_connections_and_timeouts_are_errors_of_python_too(kind, base):
    error = kind("cannot connect to a:1: Connection refused", "Connection refused")
    assert isinstance(error, base)
    assert error.retriable
    for copy in (error, pickle.loads(pickle.dumps(error)), Failure.of(error).error()):
        assert (type(copy), str(copy), copy.reason) == (kind, str(error), "Connection refused")
        assert (copy.errno, copy.strerror) == (None, None)


@pytest.mark.parametrize("module", [barnabas, errors])
def test_the_old_name_of_an_api_error_warns_and_is_the_same_class(module):
    with pytest.warns(DeprecationWarning, match=rf"{module.__name__}\.KafkaError is now .*ApiError") as warned:
        assert module.KafkaError is ApiError
    assert warned[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="version 0.3"):
        raise_and_catch(module)


def raise_and_catch(module):
    with pytest.raises(module.KafkaError, match="NOT_CONTROLLER"):
        raise ApiError(ErrorCode.NOT_CONTROLLER)


def test_the_old_name_is_not_listed():
    assert "KafkaError" not in dir(barnabas)
    assert "KafkaError" not in barnabas.__all__
    with pytest.raises(AttributeError, match=r"barnabas\.errors"):
        errors.KafkaErr  # noqa: B018
