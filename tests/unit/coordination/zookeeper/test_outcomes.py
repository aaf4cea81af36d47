"""What became of a write whose answer was lost, told from its nodes. Change 100 is the last before the write."""

from __future__ import annotations

import pytest

from barnabas.coordination.metadata_store import Check, Create, Delete, NodeData, Set, Stat
from barnabas.coordination.zookeeper.outcomes import Moment, Verdict, decide

DONE, NOT_DONE, UNKNOWN = Verdict.DONE, Verdict.NOT_DONE, Verdict.UNKNOWN
ME = 7
SOMEBODY = 8
MOMENT = Moment(last_change=100, session_id=ME)


def node(data: bytes = b"x", *, created: int = 101, modified: int | None = None, version: int = 0, owner: int = 0):
    modified = created if modified is None else modified
    return NodeData(data, Stat(version, created, modified, 1, 1, owner, 0, len(data)))


def verdict(operations, **found):
    return decide(operations, {f"/{name}": each for name, each in found.items()}, MOMENT).verdict


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({}, NOT_DONE),
        ({"a": node()}, DONE),
        ({"a": node(created=100)}, NOT_DONE),
        ({"a": node(b"other")}, NOT_DONE),
        ({"a": node(b"other", modified=102, version=1)}, UNKNOWN),
        ({"a": node(owner=SOMEBODY)}, NOT_DONE),
    ],
)
def test_created(found, wanted):
    assert verdict([Create("/a", b"x")], **found) is wanted


@pytest.mark.parametrize(("owner", "wanted"), [(ME, DONE), (SOMEBODY, NOT_DONE), (0, NOT_DONE)])
def test_ephemeral_node_is_known_by_its_owner(owner, wanted):
    assert verdict([Create("/a", b"x", ephemeral=True)], a=node(owner=owner)) is wanted


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({}, NOT_DONE),
        ({"a": node(b"old", created=1, modified=50, version=3)}, NOT_DONE),
        ({"a": node(b"x", created=1, modified=101, version=4)}, DONE),
        ({"a": node(b"other", created=1, modified=101, version=4)}, NOT_DONE),
        ({"a": node(b"x", created=1, modified=102, version=5)}, UNKNOWN),
        ({"a": node(b"x", created=101, version=0)}, NOT_DONE),
    ],
)
def test_set_of_a_version(found, wanted):
    assert verdict([Set("/a", b"x", 3)], **found) is wanted


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({}, NOT_DONE),
        ({"a": node(b"x", created=1, modified=50, version=3)}, NOT_DONE),
        ({"a": node(b"x", created=1, modified=101, version=4)}, DONE),
        ({"a": node(b"other", created=1, modified=101, version=4)}, NOT_DONE),
    ],
)
def test_set_of_any_version(found, wanted):
    assert verdict([Set("/a", b"x")], **found) is wanted


@pytest.mark.parametrize(
    ("found", "wanted"), [({}, DONE), ({"a": node(created=1)}, NOT_DONE), ({"a": node(created=101)}, DONE)]
)
@pytest.mark.parametrize("version", [-1, 0, 3])
def test_deleted(found, wanted, version):
    assert verdict([Delete("/a", version)], **found) is wanted


def test_results_are_those_that_the_answer_would_have_had():
    found = {"/a": node(b"x"), "/b": node(b"y", created=1, modified=101, version=4), "/d": node(created=1)}
    operations = [Check("/d"), Create("/a", b"x"), Set("/b", b"y", 3), Delete("/c")]
    assert decide(operations, found, MOMENT) == (DONE, [None, "/a", found["/b"].stat, None])


def test_one_certain_node_decides_for_all():
    assert verdict([Create("/a", b"x"), Delete("/b")], a=node()) is DONE
    assert verdict([Create("/a", b"x"), Delete("/b")], b=node(created=1)) is NOT_DONE
    assert verdict([Set("/a", b"x", 3), Delete("/b")], a=node(created=1, version=3)) is NOT_DONE


def test_nodes_that_contradict_one_another_leave_it_unknown():
    assert verdict([Create("/a", b"x"), Create("/b", b"x")], a=node(created=101), b=node(created=102)) is UNKNOWN
    assert verdict([Create("/a", b"x"), Delete("/b")], a=node(), b=node(created=1)) is UNKNOWN
    assert verdict([Create("/a", b"x"), Delete("/b")]) is UNKNOWN


def test_node_changed_by_others_since_leaves_the_result_of_a_set_unknown():
    changed = node(b"x", created=1, modified=103, version=9)
    assert verdict([Create("/a", b"x"), Set("/b", b"x", 3)], a=node(), b=changed) is UNKNOWN


def test_only_checks_are_simply_made_again():
    assert verdict([Check("/a", 3)], a=node()) is NOT_DONE


def test_several_operations_on_one_node_say_nothing_of_it():
    operations = [Create("/a", b"x"), Set("/a", b"y"), Create("/b", b"x")]
    assert verdict(operations, a=node(b"y", version=1), b=node()) is UNKNOWN
    assert verdict(operations) is NOT_DONE


def test_sequential_node_is_found_by_its_name_and_data():
    create = [Create("/q/n-", b"mine", sequential=True)]
    older, theirs = node(b"mine", created=100), node(b"theirs")
    found = {"/q/n-0000000001": older, "/q/n-0000000002": theirs}
    assert decide(create, found, MOMENT).verdict is NOT_DONE
    found["/q/n-0000000003"] = node(b"mine")
    assert decide(create, found, MOMENT) == (DONE, ["/q/n-0000000003"])
    found["/q/n-0000000004"] = node(b"mine", created=102)
    assert decide(create, found, MOMENT).verdict is UNKNOWN


def test_sequential_nodes_of_equal_data_are_told_apart_by_what_was_done_with_them():
    operations = [Set("/a", b"x", 3), Create("/q/n-", b"same", sequential=True)]
    stat = node(b"x", created=1, modified=105, version=4)
    found = {"/a": stat, "/q/n-0000000001": node(b"same", created=103), "/q/n-0000000002": node(b"same", created=105)}
    assert decide(operations, found, MOMENT) == (DONE, [stat.stat, "/q/n-0000000002"])


def test_names_that_only_look_alike_are_no_sequential_nodes():
    found = {"/q/n-00000000011": node(), "/q/n-000000000a": node(), "/q/m-0000000001": node()}
    assert decide([Create("/q/n-", b"x", sequential=True)], found, MOMENT).verdict is NOT_DONE


def test_node_that_is_made_and_deleted_in_one_write_leaves_the_verdict_to_the_others():
    """As where a state is written unless a deletion is noted."""
    operations = [Create("/note"), Delete("/note"), Set("/state", b"x", 3)]
    done = {"/state": node(b"x", created=1, modified=101, version=4)}
    outcome = decide(operations, done, MOMENT)
    assert outcome.verdict is DONE
    assert outcome.results == ["/note", None, done["/state"].stat]
    before = node(b"old", created=1, modified=50, version=3)
    assert verdict(operations, state=before) is NOT_DONE
    assert verdict(operations, state=before, note=node(created=90)) is NOT_DONE
    assert verdict(operations, state=node(b"y", created=1, modified=102, version=5)) is UNKNOWN
    assert verdict(operations[:2]) is UNKNOWN
