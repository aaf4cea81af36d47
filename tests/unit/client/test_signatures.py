"""The public methods of the clients: the same in both worlds, and with keywords where positions mislead."""

from __future__ import annotations

import inspect

import pytest

import barnabas

PAIRS = [
    (barnabas.Producer, barnabas.AsyncProducer),
    (barnabas.Consumer, barnabas.AsyncConsumer),
    (barnabas.Admin, barnabas.AsyncAdmin),
]
SYNC_ONLY = {"create_message_streams"}
ASYNC_ONLY = {"start", "batches"}


def public(client):
    return {name for name in dir(client) if not name.startswith("_")}


def parameters(method):
    return list(inspect.signature(method).parameters.values())


@pytest.mark.parametrize(("sync", "of_a_loop"), PAIRS)
def test_a_client_and_its_asynchronous_twin_have_the_same_methods(sync, of_a_loop):
    assert public(sync) - SYNC_ONLY == public(of_a_loop) - ASYNC_ONLY
    assert parameters(sync) == parameters(of_a_loop)
    for name in public(sync) - SYNC_ONLY:
        assert parameters(getattr(sync, name)) == parameters(getattr(of_a_loop, name)), name


@pytest.mark.parametrize("client", [client for pair in PAIRS for client in pair])
def test_close_takes_its_timeout_by_keyword(client):
    [_self, timeout] = parameters(client.close)
    assert (timeout.name, timeout.kind, timeout.default) == ("timeout_s", inspect.Parameter.KEYWORD_ONLY, None)


@pytest.mark.parametrize("client", [barnabas.Consumer, barnabas.AsyncConsumer])
@pytest.mark.parametrize(
    "name", ["poll", "poll_arrow", "poll_polars", "poll_pandas", "position", "committed", "commit"]
)
def test_a_consumer_takes_counts_and_timeouts_by_keyword(client, name):
    """Other clients count milliseconds or seconds where a position would count records."""
    for parameter in parameters(getattr(client, name)):
        if parameter.name in {"max_records", "timeout_s"}:
            assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
