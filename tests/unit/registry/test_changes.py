"""What changes ask of the topic, and what the topic says after: registered, found, deleted, referred to, imported."""

from __future__ import annotations

import pytest

from barnabas.registry import changes, records
from barnabas.registry.change_order import KeyEncodings
from barnabas.registry.changes import Change
from barnabas.registry.errors import RegistryError
from barnabas.registry.records import Record, UnknownRecordError
from barnabas.registry.requests import SchemaRequest, parse_id
from barnabas.registry.state import AVRO, JSON, Content, Reference, RegistryState, Version

SUBJECT = "clicks-value"
SCHEMA_KEY = b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
FIRST, SECOND = Content(AVRO, '"int"'), Content(AVRO, '"long"')


def carry_out(state: RegistryState, change: Change) -> object:
    """Apply records as they come back from the topic."""
    for record in change.records:
        state.apply(Record.decode(*record.encoded()))
    return change.answer


def register(state: RegistryState, subject: str, content: Content) -> int:
    answer = carry_out(state, changes.register(state, subject, SchemaRequest(content)))
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
    assert [(each.subject, each.version) for each in state.versions_of_id(".", 1)] == [
        (SUBJECT, 1),
        ("views-value", 1),
    ]


def test_records_are_those_of_confluents_registry(state: RegistryState) -> None:
    content = Content(JSON, "true", (Reference("page", "page-value", 3),))
    change = changes.register(state, SUBJECT, SchemaRequest(content))
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
        changes.delete_version(state, SUBJECT, 1, permanent=True)
    assert code_of(too_early) == 40407
    assert carry_out(state, changes.delete_version(state, SUBJECT, 1, permanent=False)) == 1
    assert not state.subjects()
    assert state.subjects(deleted=True) == [SUBJECT]
    with pytest.raises(RegistryError) as again:
        changes.delete_version(state, SUBJECT, 1, permanent=False)
    assert code_of(again) == 40406
    assert state.content(".", 1) == FIRST  # records that were written with it can still be read
    carry_out(state, changes.delete_version(state, SUBJECT, 1, permanent=True))
    with pytest.raises(RegistryError) as gone:
        state.content(".", 1)
    assert code_of(gone) == 40403


def test_a_deleted_schema_that_comes_again_has_its_id_and_a_new_version(state: RegistryState) -> None:
    register(state, SUBJECT, FIRST)
    carry_out(state, changes.delete_subject(state, SUBJECT, permanent=False))
    assert register(state, SUBJECT, FIRST) == 1
    assert [each.version for each in state.versions(SUBJECT)] == [2]


def test_settings_outlive_soft_deletion_and_go_with_the_permanent_one(state: RegistryState) -> None:
    register(state, SUBJECT, FIRST)
    register(state, SUBJECT, SECOND)
    carry_out(state, changes.set_config(state, SUBJECT, {"compatibilityLevel": "NONE"}))
    assert state.config(SUBJECT, "compatibilityLevel", "BACKWARD") == "NONE"
    assert carry_out(state, changes.delete_subject(state, SUBJECT, permanent=False)) == [1, 2]
    assert state.config(SUBJECT, "compatibilityLevel", "BACKWARD") == "NONE"
    with pytest.raises(RegistryError) as again:
        changes.delete_subject(state, SUBJECT, permanent=False)
    assert code_of(again) == 40404
    assert carry_out(state, changes.delete_subject(state, SUBJECT, permanent=True)) == [1, 2]
    assert state.config(SUBJECT, "compatibilityLevel", "BACKWARD") == "BACKWARD"
    with pytest.raises(RegistryError) as gone:
        changes.delete_subject(state, SUBJECT, permanent=True)
    assert code_of(gone) == 40401


def test_what_is_referred_to_is_not_deleted(state: RegistryState) -> None:
    register(state, "page-value", FIRST)
    register(state, SUBJECT, Content(AVRO, '"long"', (Reference("page", "page-value", 1),)))
    assert state.referrers("page-value", 1) == [2]
    for deletion in (
        lambda: changes.delete_version(state, "page-value", 1, permanent=False),
        lambda: changes.delete_subject(state, "page-value", permanent=False),
    ):
        with pytest.raises(RegistryError) as refused:
            deletion()
        assert code_of(refused) == 42206
    carry_out(state, changes.delete_subject(state, SUBJECT, permanent=False))
    with pytest.raises(RegistryError) as still_needed:
        changes.delete_version(state, "page-value", 1, permanent=False)
    assert code_of(still_needed) == 42206
    carry_out(state, changes.delete_subject(state, SUBJECT, permanent=True))
    assert carry_out(state, changes.delete_version(state, "page-value", 1, permanent=False)) == 1


def test_dependencies_come_before_what_needs_them(state: RegistryState) -> None:
    register(state, "a", FIRST)
    register(state, "b", Content(AVRO, '"b"', (Reference("a", "a", 1),)))
    needs_both = Content(AVRO, '"c"', (Reference("b", "b", 1), Reference("a", "a", 1)))
    assert changes.dependencies(state, "c", needs_both) == (("a", '"int"'), ("b", '"b"'))
    with pytest.raises(RegistryError) as missing:
        changes.dependencies(state, "c", Content(AVRO, '"c"', (Reference("d", "d", 1),)))
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
        changes.dependencies(state, "c", Content(AVRO, '"c"', (Reference("r", "s1999", 1),)))
    assert code_of(refused) == 42201


def test_an_import_keeps_ids_and_versions(state: RegistryState) -> None:
    with pytest.raises(RegistryError) as refused:
        changes.check_writable(state, SUBJECT, imported=True)
    assert code_of(refused) == 42205
    carry_out(state, changes.set_mode(state, None, "IMPORT", force=False))
    changes.check_writable(state, SUBJECT, imported=True)
    carry_out(state, changes.register(state, SUBJECT, SchemaRequest(FIRST, id=41, version=7)))
    assert state.version(SUBJECT, 7).id == 41
    with pytest.raises(RegistryError) as taken:
        changes.register(state, SUBJECT, SchemaRequest(SECOND, id=41, version=8))
    assert code_of(taken) == 42205
    carry_out(state, changes.set_mode(state, None, "READWRITE", force=False))
    assert register(state, SUBJECT, SECOND) == 42


@pytest.mark.parametrize("ids", [[2**31 - 1], [2**31 - 1, 2**31 - 2]])
def test_ids_after_the_largest_are_free_ones_that_fit_four_bytes(state: RegistryState, ids: list[int]) -> None:
    carry_out(state, changes.set_mode(state, None, "IMPORT", force=False))
    for number, schema_id in enumerate(ids):
        content = Content(AVRO, f'{{"type":"fixed","name":"F","size":{number}}}')
        carry_out(state, changes.register(state, f"s{number}", SchemaRequest(content, id=schema_id, version=1)))
    carry_out(state, changes.set_mode(state, None, "READWRITE", force=False))
    assert register(state, SUBJECT, FIRST) == min(ids) - 1
    assert register(state, SUBJECT, SECOND) == min(ids) - 2


def test_id_of_a_permanently_deleted_schema_is_not_used_again_after_the_largest(state: RegistryState) -> None:
    carry_out(state, changes.set_mode(state, None, "IMPORT", force=False))
    for subject, schema_id in (("top", 2**31 - 1), ("gone", 2**31 - 2)):
        carry_out(state, changes.register(state, subject, SchemaRequest(Content(AVRO, f'"{subject}"'), schema_id, 1)))
    carry_out(state, changes.set_mode(state, None, "READWRITE", force=False))
    for permanent in (False, True):
        carry_out(state, changes.delete_subject(state, "gone", permanent=permanent))
    assert register(state, SUBJECT, FIRST) == 2**31 - 3


def test_subject_with_the_largest_version_takes_no_other_one(state: RegistryState) -> None:
    state.apply(Record(records.schema_key(SUBJECT, 2**31 - 1), {"id": 1, "schema": '"int"'}))
    with pytest.raises(RegistryError) as refused:
        changes.register(state, SUBJECT, SchemaRequest(SECOND))
    assert code_of(refused) == 42205


@pytest.mark.parametrize(
    "body",
    [
        {"id": 2**31},
        {"id": True},
        {"id": 1.5},
        {"version": 2**31},
        {"references": [{"name": "a", "subject": "a", "version": True}]},
        {"references": [{"name": "a", "subject": "a", "version": 2**31}]},
        {"metadata": "x"},
        {"metadata": {"properties": "x"}},
        {"ruleSet": [1]},
        {"ruleSet": {"domainRules": 1}},
    ],
)
def test_request_with_a_value_out_of_bounds_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(RegistryError) as refused:
        SchemaRequest.of({"schema": '"int"', **body})
    assert code_of(refused) == 422


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("2147483647", 2**31 - 1), ("0" * 5_000 + "1", 1)])
def test_ids_of_a_path(text: str, number: int) -> None:
    assert parse_id(text) == number


@pytest.mark.parametrize("text", ["2147483648", "0" * 12 + "9" * 5_000, "-1", "x", ""])
def test_path_whose_id_is_out_of_bounds_does_not_exist(text: str) -> None:
    with pytest.raises(RegistryError) as refused:
        parse_id(text)
    assert code_of(refused) == 404


def test_version_that_refers_to_itself_can_be_deleted(state: RegistryState) -> None:
    itself = Content(AVRO, '"int"', (Reference("r", SUBJECT, 1),))
    state.apply(changes.encode_version(Version(SUBJECT, 1, 1, itself)))
    carry_out(state, changes.delete_subject(state, SUBJECT, permanent=False))


def test_forged_json_schema_that_is_no_json_does_not_stop_a_look_up(state: RegistryState) -> None:
    state.apply(changes.encode_version(Version(SUBJECT, 1, 1, Content(JSON, "no json"))))
    assert changes.find(state, SUBJECT, Content(JSON, "true")) is None


def test_change_replaces_all_encodings_of_a_key() -> None:
    canonical = b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
    older = b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":0}'
    reordered = b'{"magic": 1, "version": 1, "subject": "s", "keytype": "SCHEMA"}'
    keys = KeyEncodings()
    for key in (older, reordered):
        keys.note(Record.decode(key, b"{}"), key, b"{}")
    deletion = Record(records.schema_key("s", 1), None)
    assert dict(keys.encoded([deletion])) == {canonical: None, older: None, reordered: None}
    keys.note(Record.decode(older, None), older, None)
    assert dict(keys.encoded([])) == {reordered: None}, "the other registry deleted one encoding of the key"
    keys.note(Record.decode(reordered, b"{}"), reordered, b"{}")
    assert keys.encoded([]) == []


@pytest.mark.parametrize(
    ("key", "canonical"),
    [
        (b'{"magic":0,"subject":null,"keytype":"CONFIG"}', records.config_key(None)),
        (b'{"subject":"s","keytype":"MODE","magic":1}', records.mode_key("s")),
        (b'{"subject":"\\u0073","version":3,"keytype":"SCHEMA"}', records.schema_key("s", 3)),
    ],
)
def test_keys_are_compared_by_meaning(key: bytes, canonical: records.Key) -> None:
    assert records.canonical_key(Record.decode(key, None).key) == Record(canonical, None).encoded()[0]


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
        (SCHEMA_KEY, b'{"id":2147483648,"schema":"int"}'),
        (SCHEMA_KEY, b'{"id":0,"schema":"int"}'),
        (SCHEMA_KEY, b'{"id":-7,"schema":"int"}'),
        (SCHEMA_KEY, b'{"id":true,"schema":"int"}'),
        (SCHEMA_KEY, b'{"id":1' + b"0" * 4_000 + b',"schema":"int"}'),
        (SCHEMA_KEY.replace(b":1,", b":2147483648,"), b'{"id":9,"schema":"int"}'),
        (SCHEMA_KEY.replace(b":1,", b":true,"), b'{"id":9,"schema":"int"}'),
        (SCHEMA_KEY, b'{"id":9,"schema":"int","references":[{"name":"a","subject":"a","version":0}]}'),
        (SCHEMA_KEY, b'{"id":9,"schema":"int","references":[{"name":"a","subject":"a","version":true}]}'),
        (SCHEMA_KEY, b'{"id":9,"schema":"int","metadata":"x"}'),
        (SCHEMA_KEY, b'{"id":9,"schema":"int","metadata":{"properties":["x"]}}'),
        (SCHEMA_KEY, b'{"id":9,"schema":"int","ruleSet":[1]}'),
        (SCHEMA_KEY, b'{"id":9,"schema":"\\ud800"}'),
        (SCHEMA_KEY, b'{"id":9,"schema":"\xed\xa0\x80"}'),
        (SCHEMA_KEY, b'{"id":9,"schema":"int","metadata":{"properties":{"x":NaN}}}'),
        (b'{"keytype":"MODE","subject":null,"magic":0}', b'{"mode":"FOO"}'),
        (b'{"keytype":"MODE","subject":null,"magic":0}', b'{"mode":["READONLY"]}'),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"SOMEWHAT"}'),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":["x"]}'),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"normalize":"maybe"}'),
    ],
)
def test_a_record_of_another_kind_is_refused_and_changes_nothing(
    state: RegistryState, key: bytes | None, value: bytes | None
) -> None:
    register(state, "s", FIRST)
    with pytest.raises(UnknownRecordError):
        state.apply(Record.decode(key, value))
    assert state.version("s", 1).content == FIRST
    assert (state.mode("s"), state.config("s", "compatibilityLevel", None)) == ("READWRITE", None)


def test_a_kind_of_record_that_came_later_is_passed_over(state: RegistryState) -> None:
    state.apply(Record({"keytype": "CONTEXT", "magic": 0}, {}))
    state.apply(records.noop())
    assert not state.subjects(":*:", deleted=True)
