"""The validation of quotas, and the filter that selects them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.broker.quotas.entities import (
    EntityFilter,
    EntityPart,
    FilterComponent,
    Match,
    check_quotas,
    entity,
    entity_of,
    quota_text,
    quotas_in,
)
from barnabas.errors import ApiError, ErrorCode

EXACT, DEFAULT, ANY = Match


def test_parts_of_an_entity_have_one_order() -> None:
    assert entity_of([("client-id", "app"), ("user", None)]) == entity(None, "app")
    assert entity_of([("ip", "::FFFF:10.0.0.1")]) == (EntityPart("ip", "10.0.0.1"),)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("topic", "clicks")],
        [("user", "a"), ("user", "b")],
        [("user", "")],
        [("user", "x" * 1_001)],
        [("user", "alice"), ("ip", "10.0.0.1")],
        [("ip", "example.com")],
        [("ip", "10.0.0.0/8")],
    ],
)
def test_invalid_entities_are_refused(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(ApiError) as refused:
        entity_of(parts)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("unknown", 1.0),
        ("connection_creation_rate", 1.0),
        ("producer_byte_rate", 0.0),
        ("producer_byte_rate", -1.0),
        ("producer_byte_rate", 10_000.5),
        ("producer_byte_rate", 1e300),
        ("consumer_byte_rate", float("nan")),
        ("request_percentage", float("inf")),
        ("controller_mutation_rate", 0.0),
    ],
)
def test_invalid_quotas_are_refused(key: str, value: float) -> None:
    with pytest.raises(ApiError) as refused:
        check_quotas(entity("alice"), {key: value})
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_valid_quotas_have_kafkas_texts() -> None:
    quotas = {"producer_byte_rate": 1024.0, "request_percentage": 12.5, "controller_mutation_rate": 0.25}
    check_quotas(entity("alice"), quotas)
    texts = {key: quota_text(entity("alice"), key, value) for key, value in quotas.items()}
    assert texts == {
        "producer_byte_rate": "1024",
        "request_percentage": "12.5",
        "controller_mutation_rate": "0.25",
    }
    assert quotas_in(entity("alice"), {**texts, "SCRAM-SHA-256": "secret"}) == (quotas, [])
    check_quotas(entity(ip=None), {"connection_creation_rate": 0.0})


def test_invalid_stored_quotas_are_ignored() -> None:
    stored = {"producer_byte_rate": "many", "consumer_byte_rate": "-1", "request_percentage": "5"}
    quotas, problems = quotas_in(entity("alice"), stored)
    assert quotas == {"request_percentage": 5.0}
    assert len(problems) == 2


ENTITIES = [
    entity("alice"),
    entity("bob", "app"),
    entity(None, "app"),
    entity(None),
    entity(client_id="app"),
    entity(client_id=None),
    entity(ip="10.0.0.1"),
    entity(ip=None),
]


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, range(8)),
        ([], True, []),
        ([("user", ANY, None)], False, [0, 1, 2, 3]),
        ([("user", ANY, None)], True, [0, 3]),
        ([("user", EXACT, "bob")], False, [1]),
        ([("user", EXACT, "bob")], True, []),
        ([("user", DEFAULT, None)], False, [2, 3]),
        ([("user", DEFAULT, None)], True, [3]),
        ([("client-id", EXACT, "app")], False, [1, 2, 4]),
        ([("client-id", EXACT, "app")], True, [4]),
        ([("user", ANY, None), ("client-id", EXACT, "app")], True, [1, 2]),
        ([("ip", ANY, None)], True, [6, 7]),
        ([("ip", EXACT, "10.0.0.1")], False, [6]),
        ([("ip", EXACT, "nonsense")], False, []),
    ],
)
def test_filter_selects_entities(
    components: list[tuple[str, int, str | None]], strict: bool, expected: Sequence[int]
) -> None:
    wanted = EntityFilter([FilterComponent(*each) for each in components], strict=strict)
    assert [each for each in ENTITIES if each in wanted] == [ENTITIES[number] for number in expected]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([("topic", EXACT, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("user", EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_filters_are_refused(components: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        EntityFilter([FilterComponent(*each) for each in components], strict=False)
    assert refused.value.code is code
