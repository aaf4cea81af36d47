"""What changes ask of the topic, and what the topic says after: registered, found, deleted, referred to, imported."""

from __future__ import annotations

import pytest

from barnabas.registry import operations, records
from barnabas.registry.errors import RegistryError
from barnabas.registry.operations import Change
from barnabas.registry.records import Record, UnknownRecordError
from barnabas.registry.requests import SchemaRequest
from barnabas.registry.state import AVRO, JSON, Content, Reference, RegistryState

SUBJECT = "clicks-value"
FIRST, SECOND = Content(AVRO, '"int"'), Content(AVRO, '"long"')


def carry_out(state: RegistryState, change: Change) -> object:
    """Apply records as they come back from the topic."""
    for record in change.records:
        state.apply(Record.decode(*record.encoded()))
    return change.answer


def register(state: RegistryState, subject: str, content: Content) -> int:
    answer = carry_out(state, operations.register(state, subject, SchemaRequest(content)))
    assert isinstance(answer, dict)
    schema_id = answer["id"]
    assert isinstance(schema_id, int)
    return schema_id


@pytest.fixture
def state() -> RegistryState:
    return RegistryState()


def code_of(call: pytest.ExceptionInfo[RegistryError]) -> int:
    return call.value.code


def test_a_schema_has_one_id_in_all_subjects(state: RegistryState) -> None:
    assert register(state, SUBJECT, FIRST) == register(state, "views-value", FIRST) == 1
    assert register(state, SUBJECT, SECOND) == 2
    assert [each.version for each in state.versions(SUBJECT)] == [1, 2]
    assert [(each.subject, each.version) for each in state.homes(".", 1)] == [(SUBJECT, 1), ("views-value", 1)]


def test_records_are_those_of_confluents_registry(state: RegistryState) -> None:
    content = Content(JSON, "true", (Reference("page", "page-value", 3),))
    change = operations.register(state, SUBJECT, SchemaRequest(content))
    assert [record.encoded() for record in change.records] == [
        (
            b'{"keytype":"SCHEMA","subject":"clicks-value","version":1,"magic":1}',
            b'{"subject":"clicks-value","version":1,"id":1,"schemaType":"JSON","references":'
            b'[{"name":"page","subject":"page-value","version":3}],"schema":"true","deleted":false}',
        )
    ]


def test_deleted_first_so_that_it_can_be_seen_then_for_good(state: RegistryState) -> None:
    register(state, SUBJECT, FIRST)
    with pytest.raises(RegistryError) as too_early:
        operations.delete_version(state, SUBJECT, 1, permanent=True)
    assert code_of(too_early) == 40407
    assert carry_out(state, operations.delete_version(state, SUBJECT, 1, permanent=False)) == 1
    assert not state.subjects()
    assert state.subjects(deleted=True) == [SUBJECT]
    with pytest.raises(RegistryError) as again:
        operations.delete_version(state, SUBJECT, 1, permanent=False)
    assert code_of(again) == 40406
    assert state.content(".", 1) == FIRST  # records that were written with it can still be read
    carry_out(state, operations.delete_version(state, SUBJECT, 1, permanent=True))
    with pytest.raises(RegistryError) as gone:
        state.content(".", 1)
    assert code_of(gone) == 40403


def test_a_deleted_schema_that_comes_again_has_its_id_and_a_new_version(state: RegistryState) -> None:
    register(state, SUBJECT, FIRST)
    carry_out(state, operations.delete_subject(state, SUBJECT, permanent=False))
    assert register(state, SUBJECT, FIRST) == 1
    assert [each.version for each in state.versions(SUBJECT)] == [2]


def test_a_subject_is_deleted_with_its_settings(state: RegistryState) -> None:
    register(state, SUBJECT, FIRST)
    register(state, SUBJECT, SECOND)
    carry_out(state, operations.set_config(state, SUBJECT, {"compatibilityLevel": "NONE"}))
    assert state.config(SUBJECT, "compatibilityLevel", "BACKWARD") == "NONE"
    assert carry_out(state, operations.delete_subject(state, SUBJECT, permanent=False)) == [1, 2]
    assert state.config(SUBJECT, "compatibilityLevel", "BACKWARD") == "BACKWARD"
    with pytest.raises(RegistryError) as again:
        operations.delete_subject(state, SUBJECT, permanent=False)
    assert code_of(again) == 40404
    assert carry_out(state, operations.delete_subject(state, SUBJECT, permanent=True)) == [1, 2]
    with pytest.raises(RegistryError) as gone:
        operations.delete_subject(state, SUBJECT, permanent=True)
    assert code_of(gone) == 40401


def test_what_is_referred_to_is_not_deleted(state: RegistryState) -> None:
    register(state, "page-value", FIRST)
    register(state, SUBJECT, Content(AVRO, '"long"', (Reference("page", "page-value", 1),)))
    assert state.referrers("page-value", 1) == [2]
    for deletion in (
        lambda: operations.delete_version(state, "page-value", 1, permanent=False),
        lambda: operations.delete_subject(state, "page-value", permanent=False),
    ):
        with pytest.raises(RegistryError) as refused:
            deletion()
        assert code_of(refused) == 42206
    carry_out(state, operations.delete_subject(state, SUBJECT, permanent=False))
    with pytest.raises(RegistryError) as still_needed:
        operations.delete_version(state, "page-value", 1, permanent=False)
    assert code_of(still_needed) == 42206
    carry_out(state, operations.delete_subject(state, SUBJECT, permanent=True))
    assert carry_out(state, operations.delete_version(state, "page-value", 1, permanent=False)) == 1


def test_dependencies_come_before_what_needs_them(state: RegistryState) -> None:
    register(state, "a", FIRST)
    register(state, "b", Content(AVRO, '"b"', (Reference("a", "a", 1),)))
    needs_both = Content(AVRO, '"c"', (Reference("b", "b", 1), Reference("a", "a", 1)))
    assert operations.dependencies(state, "c", needs_both) == (("a", '"int"'), ("b", '"b"'))
    with pytest.raises(RegistryError) as missing:
        operations.dependencies(state, "c", Content(AVRO, '"c"', (Reference("d", "d", 1),)))
    assert code_of(missing) == 42201
    assert str(missing.value) == (
        "Invalid schema \"c\" with refs [{name='d', subject='d', version=1}] of type AVRO, details: no schema for the"
        " reference 'd': subject 'd', version 1"
    )


def test_the_words_for_an_invalid_schema_are_confluents() -> None:
    assert (
        str(Content(AVRO, "{", ()).invalid("no JSON")) == "Invalid schema { with refs [] of type AVRO, details: no JSON"
    )
    long = str(Content("PROTOBUF", "x" * 5_000).invalid("why"))
    assert long == f"Invalid schema {'x' * 1_000}... with refs [] of type PROTOBUF, details: why"


def test_chain_of_references_that_is_too_long_is_refused_and_not_followed_to_the_end(state: RegistryState) -> None:
    register(state, "s0", FIRST)
    for number in range(1, 2_000):
        register(state, f"s{number}", Content(AVRO, f'"t{number}"', (Reference("r", f"s{number - 1}", 1),)))
    with pytest.raises(RegistryError) as refused:
        operations.dependencies(state, "c", Content(AVRO, '"c"', (Reference("r", "s1999", 1),)))
    assert code_of(refused) == 42201


def test_an_import_keeps_ids_and_versions(state: RegistryState) -> None:
    with pytest.raises(RegistryError) as refused:
        operations.check_writable(state, SUBJECT, imported=True)
    assert code_of(refused) == 42205
    carry_out(state, operations.set_mode(state, None, "IMPORT", force=False))
    operations.check_writable(state, SUBJECT, imported=True)
    carry_out(state, operations.register(state, SUBJECT, SchemaRequest(FIRST, id=41, version=7)))
    assert state.version(SUBJECT, 7).id == 41
    with pytest.raises(RegistryError) as taken:
        operations.register(state, SUBJECT, SchemaRequest(SECOND, id=41, version=8))
    assert code_of(taken) == 42205
    carry_out(state, operations.set_mode(state, None, "READWRITE", force=False))
    assert register(state, SUBJECT, SECOND) == 42


def test_contexts_have_ids_of_their_own(state: RegistryState) -> None:
    assert register(state, SUBJECT, SECOND) == 1
    assert register(state, ":.staging:clicks-value", FIRST) == 1
    assert state.content(".staging", 1) == FIRST
    assert state.subjects() == [SUBJECT]
    assert state.subjects(":.staging:") == [":.staging:clicks-value"]
    assert state.subjects(":*:") == [":.staging:clicks-value", SUBJECT]
    assert state.contexts() == [".", ".staging"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"no json", None),
        (b"[]", None),
        (b'{"keytype":"SCHEMA","magic":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"id":"1","schema":"int"}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"id":1,"schema":"int","references":[1]}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":1,"magic":0}', b'{"version":"x"}'),
        (b'{"keytype":"MODE","subject":null,"magic":0}', b"{}"),
        (b'{"keytype":"CONFIG","subject":["s"],"magic":0}', b"{}"),
        (
            b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            b'{"id":1,"schema":"int","references":[{"name":"a","subject":["a"],"version":1}]}',
        ),
        (b"[" * 100_000, None),
    ],
)
def test_a_record_of_another_kind_is_refused_and_changes_nothing(
    state: RegistryState, key: bytes | None, value: bytes | None
) -> None:
    register(state, "s", FIRST)
    with pytest.raises(UnknownRecordError):
        state.apply(Record.decode(key, value))
    assert state.version("s", 1).content == FIRST


def test_a_kind_of_record_that_came_later_is_passed_over(state: RegistryState) -> None:
    state.apply(Record({"keytype": "CONTEXT", "magic": 0}, {}))
    state.apply(records.noop())
    assert not state.subjects(":*:", deleted=True)
