"""Sticky sharing against its promises: every partition once, the best balance, the fewest moves, nothing at once."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.groups import ASSIGNORS, Claim, cooperative_sticky_assign, owners, sticky_assign
from barnabas.model import TopicPartition
from tests.support.searches import examples

MEMBERS = "abcdef"
TOPICS = "tuvw"

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 8), max_size=4)
subscriptions = st.dictionaries(st.sampled_from(MEMBERS), st.sets(st.sampled_from(TOPICS)), max_size=6)
equal_subscriptions = st.tuples(
    st.sets(st.sampled_from(MEMBERS), min_size=1), st.sets(st.sampled_from(TOPICS), min_size=1)
).map(lambda parts: dict.fromkeys(sorted(parts[0]), parts[1]))
partitions = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 9))
claims = st.dictionaries(
    st.sampled_from(MEMBERS), st.builds(Claim, st.sets(partitions, max_size=12).map(tuple), st.integers(-1, 3))
)


def wanted_by_somebody(subscriptions, counts):
    return {
        TopicPartition(topic, partition)
        for topics in subscriptions.values()
        for topic in topics
        for partition in range(counts.get(topic, 0))
    }


def imbalance(assignment):
    return sum(len(share) ** 2 for share in assignment.values())


def moves(assignment, owner_of):
    home = {tp: member for member, share in assignment.items() for tp in share}
    return sum(home.get(tp) != owner for tp, owner in owner_of.items())


def as_claims(assignment, generation):
    return {member: Claim(tuple(share), generation) for member, share in assignment.items()}


def check_complete(assignment, subscriptions, counts):
    assert assignment.keys() == subscriptions.keys()
    given_out = Counter(tp for share in assignment.values() for tp in share)
    assert given_out == Counter(wanted_by_somebody(subscriptions, counts))
    assert all(tp.topic in subscriptions[member] for member, share in assignment.items() for tp in share)


@given(st.sampled_from(sorted(set(ASSIGNORS) - {"cooperative-sticky"})), subscriptions, counts, claims)
def test_every_partition_goes_to_exactly_one_member_that_wants_it(name, subscriptions, counts, claims):
    check_complete(ASSIGNORS[name].assign(subscriptions, counts, claims), subscriptions, counts)


@given(equal_subscriptions, counts, claims)
def test_members_with_equal_subscriptions_differ_by_one_at_most(subscriptions, counts, claims):
    shares = sticky_assign(subscriptions, counts, claims).values()
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


small_counts = st.dictionaries(st.sampled_from("tu"), st.integers(0, 3), max_size=2)
small_subscriptions = st.dictionaries(
    st.sampled_from("abc"), st.sets(st.sampled_from("tu"), min_size=1), min_size=1, max_size=3
)
small_claims = st.dictionaries(
    st.sampled_from("abc"),
    st.builds(
        Claim,
        st.sets(st.builds(TopicPartition, st.sampled_from("tu"), st.integers(0, 2)), max_size=5).map(tuple),
        st.integers(0, 2),
    ),
)


@given(small_subscriptions, small_counts, small_claims)
def test_no_other_sharing_is_better(subscriptions, counts, claims):
    """All sharings there are, by brute force: none has a better balance, or the same with fewer moves."""
    tps = sorted(wanted_by_somebody(subscriptions, counts))
    takers = [[member for member in subscriptions if tp.topic in subscriptions[member]] for tp in tps]
    owner_of = owners(subscriptions, counts, claims)
    best = min(
        (sum(count**2 for count in Counter(choice).values()), sum(owner_of.get(tp, m) != m for tp, m in pairs))
        for choice in itertools.product(*takers)
        for pairs in [list(zip(tps, choice, strict=True))]
    )
    ours = sticky_assign(subscriptions, counts, claims)
    assert (imbalance(ours), moves(ours, owner_of)) == best


@given(subscriptions, counts, claims)
def test_nothing_moves_when_nothing_changes(subscriptions, counts, claims):
    first = sticky_assign(subscriptions, counts, claims)
    assert sticky_assign(subscriptions, counts, as_claims(first, 4)) == first
    assert cooperative_sticky_assign(subscriptions, counts, as_claims(first, 4)) == first


@given(equal_subscriptions, counts, st.sampled_from(MEMBERS))
def test_who_stays_keeps_everything_when_another_leaves(subscriptions, counts, leaver):
    before = sticky_assign(subscriptions, counts)
    staying = {member: topics for member, topics in subscriptions.items() if member != leaver}
    after = sticky_assign(staying, counts, as_claims(before, 1))
    assert all(set(before[member]) <= set(after[member]) for member in staying)


@given(equal_subscriptions, counts)
def test_who_joins_gets_its_share_and_nothing_else_moves(subscriptions, counts):
    before = sticky_assign(subscriptions, counts)
    topics = next(iter(subscriptions.values()))
    after = sticky_assign({**subscriptions, "newcomer": topics}, counts, as_claims(before, 1))
    assert all(set(after[member]) <= set(before[member]) for member in subscriptions)


@given(subscriptions, counts, claims)
def test_a_cooperative_member_is_given_nothing_that_another_one_claims(subscriptions, counts, claims):
    assignment = cooperative_sticky_assign(subscriptions, counts, claims)
    for member, share in assignment.items():
        for tp in set(share) - set(claims.get(member, Claim()).partitions):
            assert not any(tp in claim.partitions for claim in claims.values())


@given(subscriptions, counts, claims)
def test_cooperative_members_are_done_with_their_second_rebalance(subscriptions, counts, claims):
    """In the first they give up what moves, in the second it is free; a third would change nothing."""
    members = {member: claim for member, claim in claims.items() if member in subscriptions}
    first = cooperative_sticky_assign(subscriptions, counts, members)
    second = cooperative_sticky_assign(subscriptions, counts, as_claims(first, 4))
    check_complete(second, subscriptions, counts)
    assert all(set(first[member]) <= set(second[member]) for member in subscriptions)
    assert imbalance(second) == imbalance(sticky_assign(subscriptions, counts, members))
    assert cooperative_sticky_assign(subscriptions, counts, as_claims(second, 5)) == second


@settings(max_examples=examples(10))
@given(st.lists(st.tuples(subscriptions, counts), max_size=8))
def test_cooperative_members_come_and_go_and_no_partition_has_two_readers(rounds):
    """Members read what they were assigned last, until they hear of the next assignment."""
    reading = {}
    for generation, (subscriptions, counts) in enumerate(rounds):
        reading = {
            member: {tp for tp in share if tp.topic in subscriptions[member]}
            for member, share in reading.items()
            if member in subscriptions
        }
        assigned = cooperative_sticky_assign(subscriptions, counts, as_claims(reading, generation))
        for member, share in assigned.items():
            others = set().union(*(has for other, has in reading.items() if other != member))
            assert not others & set(share)
        reading = {member: set(share) for member, share in assigned.items()}
