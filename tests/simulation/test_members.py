"""What members of a group were told is held against what was known when they asked, and not when they are looked at."""

from __future__ import annotations

import pytest

from barnabas.client.consumer.classic_membership import ClassicMembership
from barnabas.groups.subscriptions import encode_assignment
from barnabas.model import TopicPartition
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse
from tests.simulation.members import GenerationsTold, GroupLedger

NUMBERS = TopicPartition("numbers", 0)


class _Member:
    """A member as it stands in the ledger, which joins and is told when a test says so."""

    def __init__(self, ledger: GroupLedger, name: str) -> None:
        self.name = name
        self.membership = ClassicMembership(
            "readers", instance_id=None, session_timeout_ms=6000, rebalance_timeout_ms=12_000, strategies=("range",)
        )
        self.told = GenerationsTold(ledger, name)

    def join(self) -> None:
        self.membership.join_request(["numbers"])

    def hear(self, generation: int) -> None:
        answer = JoinGroupResponse(
            error_code=0,
            generation_id=generation,
            protocol_type="consumer",
            protocol_name="range",
            leader="another",
            member_id=self.name,
            members=[],
        )
        self.membership.on_join(answer)
        self.membership.on_sync(SyncGroupResponse(error_code=0, assignment=encode_assignment([NUMBERS])))

    def look(self) -> None:
        self.told.look(self.membership)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def ledger(said: list[str]) -> GroupLedger:
    return GroupLedger(said.append)


@pytest.fixture
def members(ledger: GroupLedger) -> tuple[_Member, _Member]:
    return _Member(ledger, "one"), _Member(ledger, "other")


def _be_told(member: _Member, generation: int) -> None:
    member.look()
    member.join()
    member.hear(generation)
    member.look()


def test_a_generation_told_before_the_next_one_is_well_however_late_its_member_polls(
    members: tuple[_Member, _Member], said: list[str]
) -> None:
    one, other = members
    _be_told(one, 3)
    one.join()
    one.hear(4)  # and it is stopped before it polls again
    _be_told(other, 5)
    one.look()
    assert said == []


def test_a_generation_asked_for_before_the_next_one_was_told_is_well(
    members: tuple[_Member, _Member], said: list[str]
) -> None:
    one, other = members
    one.look()
    one.join()
    _be_told(other, 5)
    one.look()
    one.hear(4)
    one.look()
    assert said == []


def test_a_generation_asked_for_after_a_later_one_was_told_is_found(
    members: tuple[_Member, _Member], said: list[str]
) -> None:
    one, other = members
    _be_told(one, 3)
    _be_told(other, 5)
    _be_told(one, 4)
    assert said == ["one was told generation 4 after 5 had been told"]


def test_a_generation_lower_than_the_members_own_is_found(members: tuple[_Member, _Member], said: list[str]) -> None:
    one, _ = members
    _be_told(one, 5)
    _be_told(one, 4)
    assert said == ["one was told generation 4 after 5 had been told"]


def test_generations_begin_again_when_the_group_is_forgotten(ledger: GroupLedger, said: list[str]) -> None:
    one, other, late = (_Member(ledger, name) for name in ("one", "other", "late"))
    _be_told(one, 5)
    late.look()
    late.join()
    late.hear(2)
    ledger.forget()
    late.look()  # it hears only now of a generation of before
    _be_told(other, 1)
    _be_told(other, 2)
    assert said == []
    _be_told(one, 1)
    assert said[0] == "one was told generation 1 after 2 had been told"


def test_a_partition_of_two_members_is_found_though_one_of_them_has_left(
    members: tuple[_Member, _Member], said: list[str]
) -> None:
    one, other = members
    for member in members:
        member.look()
        member.join()
    for member in members:
        member.hear(1)
    one.membership.on_left("it was closed")
    one.look()
    other.look()
    assert said == ["numbers-0 belongs to one and to other in generation 1"]
