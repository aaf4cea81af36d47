"""Addresses of ZooKeeper servers as people write them, and settings that make no sense."""

from __future__ import annotations

import pytest

from barnabas.coordination.zookeeper.config import ZooKeeperAddress, ZooKeeperConfig
from barnabas.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("z1", "z1:2181", ""),
        ("z1:2182", "z1:2182", ""),
        ("z1:2181/", "z1:2181", ""),
        (" z1:2181 , z2:2182/kafka/one/ ", "z1:2181,z2:2182", "/kafka/one"),
        ("[::1]:2181,127.0.0.1/a", "[::1]:2181,127.0.0.1:2181", "/a"),
    ],
)
def test_address_is_servers_and_a_chroot(text, hosts, chroot):
    address = ZooKeeperAddress.parse(text)
    assert (address.hosts, address.chroot) == (hosts, chroot)
    assert ZooKeeperAddress.parse(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", "/", "z1:", "z1:port", "z1:0", "z1:65536", "z1,,z2", "z1/a,z2/b//c", "http://z1:2181", "z1 z2", "::1"]
)
def test_what_is_no_address_is_refused_with_what_would_be_one(text):
    with pytest.raises(ConfigurationError, match=r"write host:port,host:port/chroot|is not a valid path"):
        ZooKeeperConfig(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"session_timeout_s": 0}, "session_timeout_s is 0"),
        ({"call_timeout_s": -1.0}, "call_timeout_s is -1"),
        ({"auth": "barnabas"}, "user:password"),
        ({"auth": ":secret"}, "user:password"),
        ({"set_acl": True}, "zookeeper.set.acl requires zookeeper.auth"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        ZooKeeperConfig("z1", **options)


def test_password_is_not_shown():
    assert "secret" not in repr(ZooKeeperConfig("z1", auth="barnabas:secret"))
