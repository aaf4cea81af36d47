"""A secret appears in no text."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import asdict, dataclass

import pytest

from barnabas.security.secrets import Secret


@dataclass(frozen=True)
class Settings:
    password: Secret


def test_secret_hides_itself_in_texts() -> None:
    secret = Secret("planted")
    settings = Settings(secret)
    for text in (repr(secret), str(secret), f"{secret:>20}", "%s %r" % (secret, secret), repr(settings)):  # noqa: UP031
        assert "planted" not in text
    assert "planted" not in str(asdict(settings))
    assert not hasattr(secret, "__dict__")


def test_secret_cannot_leave_the_process() -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(Secret("planted"), protocol)
    with pytest.raises(TypeError, match="JSON"):
        json.dumps(Secret("planted"))


def test_secrets_compare_by_their_text() -> None:
    assert Secret("a") == copy.deepcopy(Secret("a"))
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert hash(Secret("a")) == hash(Secret("a"))
    assert [bool(Secret("")), bool(Secret("a"))] == [False, True]
