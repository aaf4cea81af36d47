"""The `sasl.jaas.config` of Kafka's clients."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import ConfigurationError
from barnabas.security.jaas import JAAS_CHARACTERS_MAX, parse_jaas
from tests.support.searches import examples

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"{SCRAM} required;", {}),
        (f'{SCRAM} required username="alice" password="p";', {"username": "alice", "password": "p"}),
        (f'  {SCRAM}\n REQUIRED\n username = "alice"\n password="p" ; \n', {"username": "alice", "password": "p"}),
        (f"{SCRAM} optional username='a;b' password='it\"s';", {"username": "a;b", "password": 'it"s'}),
        (f'{SCRAM} required password="a\\"b\\\\c";', {"password": 'a"b\\c'}),
        (f"{SCRAM} required tokenauth=true;", {"tokenauth": "true"}),
        (f'{SCRAM} required password="";', {"password": ""}),
    ],
)
def test_options_of_a_login_module(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text) == ("ScramLoginModule", options)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "planted",
        f"{SCRAM} required",
        f'{SCRAM} required password="planted"',
        f'{SCRAM} sometimes password="planted";',
        f'{SCRAM} required password="planted;',
        f'{SCRAM} required password="planted"; {SCRAM} required;',
        f'{SCRAM} required "planted";',
        f"{SCRAM} required password=;",
        "x" * (JAAS_CHARACTERS_MAX + 1),
        f'{SCRAM} required password="' + "\\" * (JAAS_CHARACTERS_MAX - 200),
    ],
)
def test_other_text_is_refused_without_its_content(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_jaas(text)
    assert "planted" not in str(caught.value)


@settings(max_examples=examples(100))
@given(st.text(max_size=50))
def test_quoted_values_are_read_back(value: str) -> None:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    if "\n" not in value:  # an escape before a line break has no meaning
        assert parse_jaas(f'{SCRAM} required password="{quoted}";')[1] == {"password": value}
