"""The machines on which brokers run. New replicas of a partition never share a machine. Replicas that were placed
before their brokers had labels stay where they are.

A broker registers the label of its machine (setting `machine`). A broker without a label is treated as the only one of
its machine. The module does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from types import MappingProxyType

from barnabas.errors import ApiError, ErrorCode

Machines = Mapping[int, str]
"""The labels of the machines, by broker id. Brokers without a label are left out."""
NO_LABELS: Machines = MappingProxyType({})


def machine_of(broker_id: int, machines: Machines) -> str:
    """Return a name for the machine of a broker, which is unique for a broker without a label.

    >>> machine_of(3, {3: "host-a"}), machine_of(4, {3: "host-a"})
    ('host-a', '00000000000000000004')
    """
    return machines.get(broker_id) or f"{broker_id:020d}"


def machine_count(brokers: Iterable[int], machines: Machines) -> int:
    """Return the number of machines on which brokers run, which is the highest possible replication factor.

    >>> machine_count([1, 2, 3], {1: "host-a", 2: "host-a"})
    2
    """
    return len({machine_of(each, machines) for each in brokers})


def alternating(brokers: Sequence[int], machines: Machines) -> list[int]:
    """Return brokers in an order that alternates machines.

    >>> alternating([1, 2, 3, 4], {1: "host-a", 2: "host-a", 3: "host-b", 4: "host-b"})
    [1, 3, 2, 4]
    """
    members: dict[str, list[int]] = {}
    for each in brokers:
        members.setdefault(machine_of(each, machines), []).append(each)
    return [each for each in chain.from_iterable(zip_longest(*members.values())) if each is not None]


def check_separate(replicas: Sequence[int], machines: Machines) -> None:
    """Check that the replicas of a partition are on separate machines.

    :raises ApiError: INVALID_REPLICA_ASSIGNMENT with the brokers that share a machine.

    >>> check_separate([1, 2], {1: "host-a", 2: "host-a"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    barnabas.errors.ApiError: INVALID_REPLICA_ASSIGNMENT: brokers 1 and 2 are on the same machine, host-a; two...
    """
    seen: dict[str, int] = {}
    for each in replicas:
        machine = machine_of(each, machines)
        if machine in seen:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"brokers {seen[machine]} and {each} are on the same machine, {machine};"
                " two replicas must not share a machine",
            )
        seen[machine] = each
