"""Consumer groups by every client: alone, in twos, with each other, joining and leaving while records flow."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter

import pytest

from tests.interop.clients.neutral import Client, Membership
from tests.interop.conftest import CLIENTS
from tests.support.group_flow import PARTITIONS, member_process, numbers_in, numbers_seen, shares_all
from tests.support.reading import Member, wait_until

PAIRS = [(client, client) for client in CLIENTS] + list(itertools.combinations(CLIENTS, 2))


def names(pair: tuple[Client, Client]) -> str:
    return f"{pair[0].name} and {pair[1].name}"


def test_a_member_alone_has_all_partitions_and_sees_every_record_once(bootstrap, client, topic, group, flow) -> None:
    with Member(client, bootstrap, topic, Membership(group=group)) as member:
        wait_until(lambda: shares_all(member), "all partitions")
        wait_until(lambda: len(member.received) > 100, "a hundred records")
        sent = flow.stop()
        wait_until(lambda: len(member.received) >= sent, "all records")
    assert numbers_seen(member) == Counter(range(sent))


@pytest.mark.parametrize("pair", PAIRS, ids=names)
def test_two_members_share_the_work_and_see_every_record_once(bootstrap, pair, topic, group, flow) -> None:
    """The second joins while records flow; the first leaves while records flow; nothing is lost or seen twice."""
    membership = Membership(group=group)
    with Member(pair[0], bootstrap, topic, membership) as first:
        wait_until(lambda: shares_all(first) and len(first.received) > 50, "records for the first member")
        with Member(pair[1], bootstrap, topic, membership) as second:
            wait_until(lambda: shares_all(first, second), "a partition for each member")
            wait_until(lambda: len(second.received) > 50, "records for the second member")
            first.close()
            wait_until(lambda: shares_all(second), "all partitions for the member that is left")
            sent = flow.stop()
            wait_until(lambda: numbers_seen(first, second).total() >= sent, "all records")
    assert numbers_seen(first, second) == Counter(range(sent))


def test_every_client_takes_part_in_one_group(bootstrap, topic, group, flow) -> None:
    membership = Membership(group=group)
    with contextlib.ExitStack() as stack:
        members = [stack.enter_context(Member(client, bootstrap, topic, membership)) for client in CLIENTS]
        wait_until(lambda: shares_all(*members), "a partition for each member")
        wait_until(lambda: all(len(member.received) > 50 for member in members), "records for each member")
        sent = flow.stop()
        wait_until(lambda: numbers_seen(*members).total() >= sent, "all records")
    assert numbers_seen(*members) == Counter(range(sent))


def test_members_may_use_round_robin(bootstrap, client, topic, group, flow) -> None:
    membership = Membership(group=group, assignor="roundrobin")
    with (
        Member(client, bootstrap, topic, membership) as first,
        Member(CLIENTS[0], bootstrap, topic, membership) as second,
    ):
        wait_until(lambda: shares_all(first, second), "a partition for each member")
        assert {len(first.assigned), len(second.assigned)} == {2}


def test_a_static_member_that_comes_back_finds_its_partitions_and_disturbs_nobody(
    bootstrap, client, topic, group, flow
) -> None:
    stays = Membership(group=group, instance_id="stays")
    returns = Membership(group=group, instance_id="returns")
    with Member(client, bootstrap, topic, stays) as member:
        with Member(client, bootstrap, topic, returns) as other:
            wait_until(lambda: shares_all(member, other), "a partition for each member")
            partitions = set(other.assigned), set(member.assigned)
        with Member(client, bootstrap, topic, returns) as again:
            wait_until(lambda: again.assigned, "an assignment")
            assert (again.assigned, member.assigned) == partitions
            sent = flow.stop()
            wait_until(lambda: numbers_seen(member, other, again).total() >= sent, "all records")
    assert numbers_seen(member, other, again) == Counter(range(sent))


def test_a_static_member_that_stays_away_is_replaced_after_its_session(bootstrap, client, topic, group, flow) -> None:
    stays = Membership(group=group, instance_id="stays")
    goes = Membership(group=group, instance_id="goes", session_timeout_ms=1_000)
    with Member(client, bootstrap, topic, stays) as member:
        with Member(client, bootstrap, topic, goes) as other:
            wait_until(lambda: shares_all(member, other), "a partition for each member")
        wait_until(lambda: shares_all(member), "all partitions for the member that is left")


def test_a_member_that_is_killed_is_replaced_after_its_session(bootstrap, client, topic, group, flow, tmp_path) -> None:
    """It had no time to say good-bye, perhaps none to commit: at least once, and no gap."""
    membership = Membership(group=group, session_timeout_ms=1_000)
    seen = tmp_path / "seen"
    with Member(client, bootstrap, topic, membership) as member:
        with member_process(client, bootstrap, topic, membership, seen) as killed:
            wait_until(lambda: len(member.assigned) == PARTITIONS / 2, "half of the partitions")
            wait_until(lambda: len(numbers_in(seen)) > 50, "records for the other member")
            killed.kill()
        wait_until(lambda: shares_all(member), "all partitions for the member that is left")
        sent = flow.stop()
        seen_by_the_killed = numbers_in(seen)
        wait_until(lambda: seen_by_the_killed | numbers_seen(member).keys() >= set(range(sent)), "all records")
