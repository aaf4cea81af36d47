"""Requests become what they say, and what is none is refused."""

from __future__ import annotations

import pytest
from kazoo.protocol import serialization as kazoo
from kazoo.security import OPEN_ACL_UNSAFE

from barnabas.coordination.zookeeper.server.jute import boolean, int_, long, string, vector
from barnabas.coordination.zookeeper.server.requests import (
    Acl,
    ConnectRequest,
    Kind,
    Multi,
    Other,
    Read,
    SetWatches,
    Write,
    read_connect,
    read_request,
)
from barnabas.errors import MalformedMessageError

OPEN = (Acl(31, "world", "anyone"),)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (kazoo.Create("/a", b"1", OPEN_ACL_UNSAFE, 3), Write(Kind.CREATE, "/a", b"1", flags=3, acl=OPEN)),
        (kazoo.Create2("/a", b"1", OPEN_ACL_UNSAFE, 0), Write(Kind.CREATE2, "/a", b"1", acl=OPEN)),
        (kazoo.SetData("/a", b"1", 7), Write(Kind.SET_DATA, "/a", b"1", 7)),
        (kazoo.Delete("/a", -1), Write(Kind.DELETE, "/a")),
        (kazoo.Exists("/a", None), Read(Kind.EXISTS, "/a", watch=False)),
        (kazoo.GetData("/a", print), Read(Kind.GET_DATA, "/a", watch=True)),
        (kazoo.GetChildren("/a", None), Read(Kind.GET_CHILDREN, "/a", watch=False)),
        (kazoo.GetChildren2("/a", None), Read(Kind.GET_CHILDREN2, "/a", watch=False)),
        (kazoo.GetACL("/a"), Other(Kind.GET_ACL, "/a")),
        (kazoo.Sync("/a"), Other(Kind.SYNC, "/a")),
        (kazoo.Auth(0, "digest", "me:secret"), Other(Kind.AUTH, "digest")),
        (kazoo.PingInstance, Other(Kind.PING)),
        (kazoo.CloseInstance, Other(Kind.CLOSE_SESSION)),
        (
            kazoo.Transaction([kazoo.CheckVersion("/a", 1), kazoo.Delete("/b", 2)]),
            Multi((Write(Kind.CHECK, "/a", version=1), Write(Kind.DELETE, "/b", version=2))),
        ),
        (kazoo.Reconfig("", "", "", -1), Other(16)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_requests_of_kazoo_are_understood(sent: object, read: object) -> None:
    frame = int_(42) + int_(sent.type) + bytes(sent.serialize())  # type: ignore[attr-defined]
    assert read_request(frame) == (42, read)


def test_watches_that_are_set_again_are_understood() -> None:
    paths = [vector([string("/a"), string("/b")]), vector([]), vector([string("/c")])]
    frame = int_(-8) + int_(101) + long(99) + b"".join(paths)
    assert read_request(frame) == (-8, SetWatches(99, ("/a", "/b"), (), ("/c",)))


@pytest.mark.parametrize("has_read_only", [True, False])
def test_first_request_of_a_connection_is_understood(has_read_only: bool) -> None:
    frame = bytes(kazoo.Connect(0, 5, 9_000, 77, b"p" * 16, False).serialize())
    expected = ConnectRequest(5, 9_000, 77, b"p" * 16, has_read_only=has_read_only)
    assert read_connect(frame if has_read_only else frame[:-1]) == expected


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        int_(1),
        int_(1) + int_(Kind.GET_DATA),
        int_(1) + int_(Kind.MULTI) + int_(99) + boolean(False) + int_(-1),
        int_(1) + int_(Kind.MULTI) + int_(Kind.GET_DATA) + boolean(False) + int_(-1) + string("/a") + boolean(False),
    ],
    ids=["empty", "no kind", "no path", "multi of something else", "multi that reads"],
)
def test_what_is_no_request_is_refused(frame: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        read_request(frame)
