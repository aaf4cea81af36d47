"""Every request of the conversation passes the stage that counts, whatever way it takes through the broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.broker.broker import Broker
from barnabas.broker.handlers import SERVED
from barnabas.broker.inter_broker import SERVED as SERVED_TO_BROKERS
from barnabas.broker.pipeline.call import Call, RunRules, ServedApi
from barnabas.broker.pipeline.chain import CLIENT_ID_CHARACTERS_MAX, NO_RESPONSE, OTHER_CLIENTS, Chain
from barnabas.broker.pipeline.scheduler import ConnectionRequests
from barnabas.net.server_connection import Frame, FrameReply
from barnabas.protocol.codec import RequestHeader
from tests.conversation.script import SCENES, perform
from tests.conversation.stage import BROKERS, CLIENTS
from tests.conversation.transcript import CountKey, LineRecord, expected_counts, uncertain_client_ids

PRODUCE, API_VERSIONS = 0, 18
UNREADABLE = frozenset({"malformed", "slices"})
"""Scenes with frames that have a header and cannot be decoded."""


def performed(name: str) -> tuple[list[LineRecord], Counter[CountKey]]:
    """Perform a scene; return the connections, and what the broker has counted."""
    counted: Counter[CountKey] = Counter()

    def note(broker: Broker) -> None:
        for listener, pipeline in zip((CLIENTS, BROKERS), broker.pipelines, strict=False):
            for kind, count in pipeline.counts.counts().items():
                code = None if kind.error_code == NO_RESPONSE else kind.error_code
                counted[CountKey(kind.api_key, kind.version, listener, kind.client_id, code)] += count

    return perform(name, at_end=note), counted


def begun(counts: Counter[CountKey]) -> Counter[CountKey]:
    """Return counts without frames that are no calls, as the broker names them."""
    found: Counter[CountKey] = Counter()
    for key, count in counts.items():
        if len(key.client_id or "") > CLIENT_ID_CHARACTERS_MAX:
            key = key._replace(client_id=OTHER_CLIENTS)  # noqa: PLW2901
        served = (SERVED if key.listener == CLIENTS else SERVED_TO_BROKERS).get(key.api_key)
        if served is not None and key.version in served.versions:
            found[key] += count
        elif key.api_key == API_VERSIONS:
            found[key._replace(version=0)] += count  # which the answer is in
    return found


def by_kind(counts: Counter[CountKey], without: set[str | None]) -> dict[CountKey, Counter[int | None]]:
    """Return the counts of each API, version, listener and client by error code."""
    found: dict[CountKey, Counter[int | None]] = {}
    for key, count in counts.items():
        if key.client_id not in without:
            found.setdefault(key._replace(error_code=None), Counter())[key.error_code] += count
    return found


def differences(name: str) -> list[str]:
    """Perform a scene; return where the broker has counted something else than the clients."""
    lines, counted = performed(name)
    uncertain = uncertain_client_ids(lines)
    ours, theirs = by_kind(counted, uncertain), by_kind(begun(expected_counts(lines)), uncertain)
    found = []
    for kind in ours | theirs:
        broker, clients = ours.get(kind, Counter()), theirs.get(kind, Counter())
        if not are_alike(name, kind, broker, clients):
            found.append(f"{kind}: the broker has {dict(broker)}, the clients have {dict(clients)}")
    return found


def are_alike(name: str, kind: CountKey, broker: Counter[int | None], clients: Counter[int | None]) -> bool:
    """Whether the counts of one kind agree.

    The broker counts a run without acknowledgements as a whole, also the requests beside the one that failed. It also
    counts frames that have a header and cannot be decoded; to clients these are no requests.
    """
    is_unsure = name in UNREADABLE or (kind.api_key == PRODUCE and clients[None])
    if not is_unsure:
        return broker == clients
    codes = {*broker, *clients} - {None} - ({0} if kind.api_key == PRODUCE else set())
    return all(broker[code] == clients[code] for code in codes)


@pytest.mark.parametrize("name", [each for each in SCENES if each != "wild"])  # whose frames are random bytes
def test_counts_of_the_broker_are_those_of_the_clients(name: str) -> None:
    assert differences(name) == []


# --- planted bypasses ---


def answer_at_once(requests: ConnectionRequests, frames: Sequence[Frame]) -> FrameReply:
    """Answer what a template recognises before it becomes a call."""
    template = requests.state.templates.frame
    repeated = None if template is None else template.recognise(frames[0])
    if repeated is not None and (answer := repeated.store_at_once()) is not None:
        return FrameReply(1, [answer])
    return CARRY_OUT(requests, frames)


def encode_without_stages(requests: ConnectionRequests, call: Call, response: Any) -> Any:
    """Encode what is done in slices, and let it leave past the stages."""
    chain, requests._chain = requests._chain, Chain([])
    try:
        return (yield from ENCODE_STEPS(requests, call, response))
    finally:
        requests._chain = chain


def carry_out_recognised_run(
    requests: ConnectionRequests, served: ServedApi, header: RequestHeader, frames: Sequence[Frame], rules: RunRules
) -> FrameReply:
    """Carry out a run whose first request a template recognises past the stages."""
    known = requests.state.templates.batches(served, header.api_version, header.client_id)
    if known.recognise(frames[0]) is None:
        return CARRY_OUT_RUN(requests, served, header, frames, rules)
    chain, requests._chain = requests._chain, Chain([])
    try:
        return CARRY_OUT_RUN(requests, served, header, frames, rules)
    finally:
        requests._chain = chain


CARRY_OUT, ENCODE_STEPS, CARRY_OUT_RUN = (
    ConnectionRequests.carry_out,
    ConnectionRequests._encode_steps,
    ConnectionRequests._carry_out_run,
)


@pytest.mark.parametrize(
    ("method", "bypass", "scene"),
    [
        ("carry_out", answer_at_once, "commits"),
        ("_encode_steps", encode_without_stages, "slices"),
        ("_carry_out_run", carry_out_recognised_run, "produce"),
    ],
)
def test_planted_bypass_is_found(method: str, bypass: Any, scene: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConnectionRequests, method, bypass)
    assert differences(scene)
