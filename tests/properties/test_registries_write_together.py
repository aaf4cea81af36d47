"""Registries that write at the same time, a stranger, a compaction: each id stands for one schema, and all agree.

The log is a list. A registry reads it in pieces of any size, plans from what it has read, and writes whenever it likes;
it may write after a long sleep, or end before it has read what it wrote.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.registry import changes, records
from barnabas.registry.change_order import ChangeHeader, Effect, LogEntry, SchemaLog
from barnabas.registry.changes import Change
from barnabas.registry.errors import RegistryError
from barnabas.registry.records import Record, UnknownRecordError
from barnabas.registry.requests import SchemaRequest
from barnabas.registry.state import AVRO, Content, RegistryState
from tests.support.searches import examples

SUBJECTS = ("a", "b")
SCHEMAS = [json.dumps({"type": "fixed", "name": "f", "size": size}) for size in range(1, 7)]


class Stored(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None
    claim: ChangeHeader | None


class Registry:
    """What one registry has read, and the change that it has planned."""

    def __init__(self, log: list[Stored]) -> None:
        self.log = log
        self.state = RegistryState()
        self.read = SchemaLog(self.state)
        self.planned: tuple[list[LogEntry], object] | None = None
        self.answers: dict[str, tuple[object, int]] = {}
        """By change that is in the log and was not read back: what it answers, and how many records it has."""
        self.effects: dict[str, list[Effect]] = {}
        self.given: dict[int, str] = {}
        """The ids that were answered."""

    def take(self, count: int) -> None:
        for stored in [each for each in self.log if each.offset >= self.read.next_offset][:count]:
            try:
                effect = self.read.take(stored.offset, stored.key, stored.value, stored.claim)
            except UnknownRecordError:
                continue
            if stored.claim is not None and stored.claim.change in self.answers:
                self._read_back(stored.claim.change, effect)

    def _read_back(self, change: str, effect: Effect) -> None:
        effects = self.effects.setdefault(change, [])
        effects.append(effect)
        answer, count = self.answers[change]
        if len(effects) < count:
            return
        assert len({each is Effect.NOTHING for each in effects}) == 1, "a change has its effect as a whole"
        if Effect.NOTHING not in effects and isinstance(answer, tuple):
            schema_id, text = answer
            assert self.given.setdefault(schema_id, text) == text
        del self.answers[change]

    def plan(self, subject: str, schema: int | None, name: int) -> None:
        """Plan the registration of a schema; None: the deletion of the subject."""
        try:
            change, answer = self._change(subject, schema)
        except RegistryError:
            change, answer = Change((), None), None
        entries = self.read.entries(f"{name:016x}", change.records)
        if entries:
            self.planned = entries, answer

    def _change(self, subject: str, schema: int | None) -> tuple[Change, object]:
        if schema is None:
            is_deleted = not self.state.versions(subject)
            return changes.delete_subject(self.state, subject, permanent=is_deleted), None
        request = SchemaRequest(Content(AVRO, SCHEMAS[schema]))
        if changes.find(self.state, subject, request.content):
            return Change((), None), None
        change = changes.register(self.state, subject, request)
        return change, (change.answer["id"], SCHEMAS[schema])

    def write(self) -> None:
        """Write what was planned, whatever has happened since."""
        if self.planned is None:
            return
        entries, answer = self.planned
        self.planned = None
        for entry in entries:
            claim = ChangeHeader.of([entry.header])
            assert claim is not None
            self.answers[claim.change] = answer, len(entries)
            append(self.log, entry.key, entry.value, claim)


def append(log: list[Stored], key: bytes, value: bytes | None, claim: ChangeHeader | None) -> None:
    log.append(Stored(log[-1].offset + 1 if log else 0, key, value, claim))


def compact(log: list[Stored]) -> None:
    """Keep the last record of each key, apart from the newest records, as cleaners do."""
    last = {stored.key: stored.offset for stored in log}
    log[:] = [stored for stored in log[:-1] if last[stored.key] == stored.offset] + log[-1:]


def shown(state: RegistryState) -> list[object]:
    return [state.versions(subject, deleted=True) for subject in SUBJECTS]


SCHEMA_OR_NONE = st.sampled_from([*range(len(SCHEMAS)), None])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(0, 2), st.integers(1, 4)),
        st.tuples(st.just("plan"), st.integers(0, 2), st.sampled_from(SUBJECTS), SCHEMA_OR_NONE),
        st.tuples(st.just("write"), st.integers(0, 2)),
        st.tuples(st.just("stranger"), st.integers(0, 5)),
        st.tuples(st.just("restart"), st.integers(0, 2)),
    ),
    max_size=60,
)  # fmt: skip


@settings(max_examples=examples(300))
@given(STEPS)
def test_registries_agree_and_an_id_stands_for_one_schema(steps: list[tuple[object, ...]]) -> None:
    log: list[Stored] = []
    registries = [Registry(log) for _ in range(3)]
    given_ids: dict[int, str] = {}
    for name, (kind, *arguments) in enumerate(steps):
        number = arguments[0]
        assert isinstance(number, int)
        registry = registries[number % 3]
        if kind == "read":
            registry.take(arguments[1])  # type: ignore[arg-type]
        elif kind == "plan":
            registry.plan(arguments[1], arguments[2], name)  # type: ignore[arg-type]
        elif kind == "write":
            registry.write()
        elif kind == "restart":
            given_ids |= registry.given
            registries[number] = Registry(log)
        else:
            append(log, *_of_a_stranger(number))
    for registry in registries:
        registry.take(len(log))
        for schema_id, text in registry.given.items():
            assert given_ids.setdefault(schema_id, text) == text
    known = shown(registries[0].state)
    assert all(shown(registry.state) == known for registry in registries)
    for schema_id, text in given_ids.items():
        for home in registries[0].state.versions_of_id(".", schema_id):
            version = registries[0].state.version(home.subject, home.version, deleted=True)
            assert version.content.text == text

    # The next change repairs the keys whose last record has no effect. What compaction leaves is the same state.
    registries[0].planned = None
    registries[0].plan("a", None, len(steps))
    registries[0].write()
    registries[0].take(len(log))
    assert not registries[0].read.needs_repairs
    known = shown(registries[0].state)
    compact(log)
    fresh = Registry(log)
    fresh.take(len(log))
    assert shown(fresh.state) == known


def _of_a_stranger(which: int) -> tuple[bytes, bytes | None, ChangeHeader | None]:
    """Return a record that anybody may write: with claims, without, and such that no registry writes."""
    noop = Record({"keytype": records.NOOP, "magic": 0}, None).encoded()
    mode = Record(records.mode_key(None), {"mode": "FOO"}).encoded()
    config = Record(records.config_key(None), {"compatibilityLevel": "FULL"}).encoded()
    claims = (None, ChangeHeader("0" * 16, 0), ChangeHeader("f" * 16, 2**62, is_repair=True))
    return (*(noop, mode, config)[which % 3], claims[which % len(claims)])
