"""Hosts and ports as text: what is printed can be given to a client as it is."""

import pytest

from barnabas.addresses import bare_host, host_port, host_ports, split_host_port, split_listener
from barnabas.broker.settings.static import BrokerConfig
from barnabas.cli.cluster_file import ClusterFile
from barnabas.client.config import parse_addresses
from barnabas.coordination.values import BrokerRegistration, decode_broker, encode_broker
from barnabas.errors import ConfigurationError
from barnabas.model import Node
from barnabas.net.server_connection import Endpoints
from barnabas.registry.main import RegistryConfig

HOSTS = ["broker-1", "127.0.0.1", "::1", "fe80::1%eth0", "::ffff:10.0.0.1", "::"]


@pytest.mark.parametrize("host", HOSTS)
def test_what_is_written_is_read_again(host):
    written = host_port(host, 9092)

    assert split_host_port(written) == (host, 9092)
    assert parse_addresses(written) == ((host, 9092),)
    assert bare_host(host) == host
    assert bare_host(written.removesuffix(":9092")) == host


@pytest.mark.parametrize("text", ["[::1", "::1]", "[]", "[a]", "a:9092", "[::1]:9092", "a b", "a/b", "[[::1]]", ":"])
def test_other_text_is_no_host(text):
    with pytest.raises(ValueError, match="is not a host name or an IP address"):
        bare_host(text)


@pytest.mark.parametrize("text", ["a", "a:", ":1", "a:x", "a:65536", "a:-1", "a:1:2", "::1", "[::1]", "[a]:1", "a:²"])
def test_other_text_is_no_address(text):
    with pytest.raises(ValueError, match="is not"):
        split_host_port(text)


@pytest.mark.parametrize(
    "printed",
    [
        str(Node(1, "::1", 9092)).split()[0],
        str(Node(1, "[::1]", 9092)).split()[0],
        Endpoints("::1", 9092, "::1").address,
        *ClusterFile({1: 9092}, host="::1").addresses,
        host_ports([("::1", 9092)]),
    ],
)
def test_ipv6_addresses_are_printed_in_brackets(printed):
    assert printed == "[::1]:9092"


@pytest.mark.parametrize("name", ["host", "advertised_host", "inter_broker_host"])
def test_broker_settings_take_hosts_with_and_without_brackets(name):
    assert getattr(BrokerConfig(**{name: "[::1]"}), name) == "::1"
    assert getattr(BrokerConfig(**{name: "::1"}), name) == "::1"
    for wrong in ("[::1", "broker-1:9092", "[broker-1]"):
        with pytest.raises(ConfigurationError, match=rf"{name.replace('_', '.')}: .* is not a host name"):
            BrokerConfig(**{name: wrong})


def test_a_registry_takes_hosts_with_and_without_brackets():
    assert RegistryConfig("localhost:9092", host="[::1]").host == "::1"
    with pytest.raises(ConfigurationError, match="--host: "):
        RegistryConfig("localhost:9092", host="[::1")


def test_a_listener_for_the_tree_has_brackets_around_ipv6():
    for address in ("[::1]:2181", ":2181", "2181"):
        BrokerConfig(zookeeper_listener=address)
    assert split_listener(":2181") == ("127.0.0.1", 2181)
    with pytest.raises(ConfigurationError, match=r"zookeeper.listener is '\[::1\]'; it must be \[HOST:\]PORT"):
        BrokerConfig(zookeeper_listener="[::1]")


def test_a_registration_is_written_as_kafka_does_and_read_with_and_without_brackets():
    broker = BrokerRegistration(1, "::1", 9092, 0, replication_host="::1", replication_port=9093)

    data = encode_broker(broker)

    assert b'"PLAINTEXT://[::1]:9092"' in data
    assert decode_broker("/brokers/ids/1", data.replace(b'"host":"::1"', b'"host":"[::1]"')).host == "::1"
    for each in (data, data.replace(b"REPLICATION://::1:", b"REPLICATION://[::1]:")):
        found = decode_broker("/brokers/ids/1", each)
        assert (found.replication_host, found.replication_port) == ("::1", 9093)
