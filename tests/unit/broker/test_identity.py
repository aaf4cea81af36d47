"""Which brokers a client is told of, and at which addresses."""

from __future__ import annotations

import pytest

from barnabas.broker.identity import BrokerAddress, Identity, address_of, addresses
from barnabas.broker.metadata_image import MetadataImage
from barnabas.broker.pipeline.call import ListenerName
from barnabas.coordination.values import BrokerEndpoint, BrokerRegistration, LiveBroker
from tests.support.fake_link import connection_state

CONNECTION = connection_state("10.0.0.9", "10.0.0.2")
OWN = Identity(2, "castle", (BrokerEndpoint("PLAINTEXT", "two.example", 9092),), "north")


def image_of(*registrations: BrokerRegistration) -> MetadataImage:
    return MetadataImage({each.id: LiveBroker(each, 1) for each in registrations})


def test_brokers_are_told_by_id_whatever_the_order_in_which_they_came() -> None:
    image = image_of(BrokerRegistration(3, "three", 3), BrokerRegistration(1, "one", 1))
    assert [each.id for each in addresses(image, OWN, CONNECTION)] == [1, 2, 3]


def test_others_are_where_they_registered_and_a_rack_that_nobody_named_is_none() -> None:
    image = image_of(BrokerRegistration(1, "one", 9, "inside", 7, rack="south"), BrokerRegistration(3, "three", 3))
    assert addresses(image, OWN, CONNECTION)[0] == BrokerAddress(1, "one", 9, "south")
    assert addresses(image, OWN, CONNECTION)[2] == BrokerAddress(3, "three", 3, None)


@pytest.mark.parametrize("registered", [[], [BrokerRegistration(2, "registered", 1, rack="other")]])
def test_this_broker_says_itself_where_it_is_registered_or_not(registered: list[BrokerRegistration]) -> None:
    assert addresses(image_of(*registered), OWN, CONNECTION) == [BrokerAddress(2, "two.example", 9092, "north")]


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_broker_that_listens_on_all_addresses_is_where_the_client_reached_it(host: str) -> None:
    own = Identity(2, "castle", (BrokerEndpoint("PLAINTEXT", host, 9092),))
    image = image_of(BrokerRegistration(1, "0.0.0.0", 1))
    assert addresses(image, own, CONNECTION) == [
        BrokerAddress(1, "0.0.0.0", 1, None),  # only that broker knows better
        BrokerAddress(2, "10.0.0.2", 9092, None),
    ]


def test_address_of_one_broker_is_that_of_all_and_none_where_it_does_not_live() -> None:
    image = image_of(BrokerRegistration(1, "one", 1))
    assert address_of(1, image, OWN, CONNECTION) == BrokerAddress(1, "one", 1, None)
    assert address_of(2, image, OWN, CONNECTION) == BrokerAddress(2, "two.example", 9092, "north")
    assert address_of(3, image, OWN, CONNECTION) is None
    assert address_of(-1, image, OWN, CONNECTION) is None


def test_client_gets_the_addresses_of_the_listener_that_it_uses() -> None:
    own = Identity(
        2, "castle", (BrokerEndpoint("PLAINTEXT", "two", 9092), BrokerEndpoint("SECURE", "two", 9093, "SSL"))
    )
    endpoints = BrokerEndpoint("PLAINTEXT", "one", 1), BrokerEndpoint("SECURE", "one.example", 2, "SSL")
    image = image_of(BrokerRegistration(1, "one", 1, endpoints=endpoints), BrokerRegistration(3, "three", 3))
    connection = connection_state(listener=ListenerName("SECURE", "SSL"))
    assert addresses(image, own, connection) == [
        BrokerAddress(1, "one.example", 2, None),
        BrokerAddress(2, "two", 9093, None),
    ]
