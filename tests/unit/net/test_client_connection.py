"""Requests and answers of one connection, over a stream that is a list."""

from __future__ import annotations

import asyncio
import ssl
import struct
import tracemalloc

import pytest

from barnabas.errors import AuthenticationError, DisconnectedError, TimedOutError, UnsupportedVersionError
from barnabas.net.client_connection import MIB, ClientConnection, dial
from barnabas.protocol.codec import EncodedRequest, read_request_header, response_frame
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeResponse
from barnabas.security.plain import PlainClient
from barnabas.security.scram import ScramClient, ScramMechanism

HEARTBEAT = 12


class FakeStream:
    def __init__(self, on_bytes, on_drained, on_closed):
        self.on_bytes, self.on_drained, self.on_closed = on_bytes, on_drained, on_closed
        self.is_open = True
        self.unsent_bytes = 0
        self.sent = []

    def send(self, chunks):
        self.sent.append(b"".join(chunks))

    def close(self, error=None):
        if self.is_open:
            self.is_open = False
            self.on_closed(error)

    def receive(self, *messages):
        """Let answers arrive, all in one piece."""
        self.on_bytes(memoryview(b"".join(b"".join(response_frame(*each)) for each in messages)))


class Peer:
    """A connection that has learned what its broker serves."""

    def __init__(self):
        def open_stream(*callbacks):
            self.stream = FakeStream(*callbacks)
            return self.stream

        self.connection = ClientConnection(asyncio.get_running_loop(), open_stream, "a:1", "test")

    async def negotiate(self):
        asked = asyncio.create_task(self.connection.negotiate("1", 10.0))
        await asyncio.sleep(0)
        keys = [ApiVersion(api_key=HEARTBEAT, min_version=0, max_version=4)]
        self.stream.receive((ApiVersionsResponse(error_code=0, api_keys=keys), 3, 1))
        await asked
        self.stream.sent.clear()
        return self


def run(test):
    async def main():
        async with asyncio.timeout(60):
            await test(await Peer().negotiate())

    asyncio.run(main())


def heartbeat(number=0):
    return HeartbeatRequest(group_id="g", generation_id=number, member_id="m")


def ok(number, error_code=0):
    return HeartbeatResponse(error_code=error_code), 4, number


def test_what_was_submitted_leaves_in_one_piece_and_answers_come_in_order():
    async def test(peer):
        got = []
        for number in range(3):
            peer.connection.submit(heartbeat(), lambda response, error, n=number: got.append((n, response.error_code)))
        assert not peer.stream.sent
        peer.connection.flush()
        [sent] = peer.stream.sent
        assert read_request_header(sent[4:]).api_key == HEARTBEAT
        assert peer.connection.in_flight == 3
        peer.stream.receive(ok(2, 0), ok(3, 1), ok(4, 2))
        assert got == [(0, 0), (1, 1), (2, 2)]
        assert peer.connection.in_flight == 0

    run(test)


def test_progress_is_told_once_for_all_answers_that_came_together():
    async def test(peer):
        got = []
        peer.connection.on_progress = lambda: got.append("progress")
        for _ in range(2):
            peer.connection.submit(heartbeat(), lambda response, error: got.append("answer"))
        peer.connection.flush()
        peer.stream.receive(ok(2), ok(3))
        assert got == ["answer", "answer", "progress"]
        peer.stream.on_drained()
        assert got[3:] == ["progress"]

    run(test)


def test_the_end_of_the_connection_fails_what_waits_and_tells_of_progress():
    async def test(peer):
        got = []
        peer.connection.on_progress = lambda: got.append("progress")
        peer.connection.submit(heartbeat(), lambda response, error: got.append(type(error)))
        peer.connection.flush()
        future = peer.connection.send_soon(heartbeat())
        peer.stream.close(OSError("gone"))
        assert got == [DisconnectedError, "progress"]
        with pytest.raises(DisconnectedError, match="a:1 was closed: gone"):
            await future
        with pytest.raises(DisconnectedError, match="gone"):
            peer.connection.submit(heartbeat(), None)

    run(test)


def test_a_request_that_is_not_answered_in_time_ends_the_connection():
    async def test(peer):
        patient = peer.connection.send_soon(heartbeat(), timeout_s=60.0)
        with pytest.raises(TimedOutError, match=r"a:1 did not answer a Heartbeat request within 0\.01 s"):
            await peer.connection.send(heartbeat(), timeout_s=0.01)
        with pytest.raises(TimedOutError):
            await patient
        assert not peer.connection.is_open

    run(test)


def test_a_request_that_was_answered_in_time_leaves_the_others_their_time():
    async def test(peer):
        quick = peer.connection.send_soon(heartbeat(), timeout_s=0.02)
        patient = peer.connection.send_soon(heartbeat(), timeout_s=60.0)
        peer.stream.receive(ok(2))
        await quick
        await asyncio.sleep(0.04)
        assert peer.connection.is_open
        peer.stream.receive(ok(3))
        await patient

    run(test)


def test_an_answer_that_cannot_be_read_fails_the_request_and_ends_the_connection():
    async def test(peer):
        future = peer.connection.send_soon(heartbeat())
        peer.stream.on_bytes(memoryview(b"\0\0\0\5\0\0\0\2\0"))
        with pytest.raises(DisconnectedError, match="sent an invalid response"):
            await future
        assert not peer.connection.is_open

    run(test)


def test_an_answer_that_nobody_waits_for_ends_the_connection():
    async def test(peer):
        peer.stream.receive(ok(77))
        assert not peer.connection.is_open

    run(test)


def test_a_cancelled_wait_for_an_answer_disturbs_no_other():
    async def test(peer):
        first, second = peer.connection.send_soon(heartbeat()), peer.connection.send_soon(heartbeat())
        first.cancel()
        peer.stream.receive(ok(2), ok(3))
        assert (await second).error_code == 0

    run(test)


def test_a_request_that_is_not_served_is_refused_before_it_is_sent():
    async def test(peer):
        with pytest.raises(UnsupportedVersionError, match="a:1 serves versions none of ListGroups"):
            await peer.connection.send(ListGroupsRequest())
        assert not peer.stream.sent

    run(test)


def test_a_request_without_answer_is_not_waited_for():
    async def test(peer):
        peer.connection.post(heartbeat())
        assert len(peer.stream.sent) == 1
        assert peer.connection.in_flight == 0

    run(test)


def test_each_request_that_fails_gets_an_exception_of_its_own():
    async def test(peer):
        first, second = heartbeat(), heartbeat()
        failed = [asyncio.create_task(peer.connection.send(each, timeout_s=10)) for each in (first, second)]
        await asyncio.sleep(0)
        peer.stream.close(OSError("reset"))
        errors = await asyncio.gather(*failed, return_exceptions=True)
        for _ in range(2):
            with pytest.raises(DisconnectedError, match="reset") as refused:
                await peer.connection.send(first)
            errors.append(refused.value)
        assert len(set(map(id, errors))) == 4

    run(test)


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "\N{LATIN SMALL LETTER U WITH DIAERESIS}..x"], ids=ascii)
def test_what_cannot_be_a_name_of_a_host_is_told_as_such(host):
    with pytest.raises(DisconnectedError, match="cannot connect to") as refused:
        asyncio.run(dial(host, 1))
    assert refused.value.reason


@pytest.mark.parametrize(
    ("request_", "announced"),
    [
        (FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=10_000_000, topics=[]), 200 * MIB),
        (EncodedRequest(FetchRequest, b"", lambda _: None, 10_000_000), 400 * MIB),
        (FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 2**31 - 1),
        (heartbeat(), 101 * MIB),
        (heartbeat(), -5),
    ],
)
@pytest.mark.parametrize("pieces", [False, True])
def test_an_answer_much_larger_than_what_was_asked_for_ends_the_connection(request_, announced, pieces):
    async def test(peer):
        answered = peer.connection.send_soon(request_, version=4)
        data = struct.pack(">ii", announced, 2)
        for part in [data[:2], data[2:]] if pieces else [data]:
            peer.stream.on_bytes(memoryview(part))
        assert not peer.stream.is_open
        with pytest.raises(DisconnectedError, match="frame of"):
            await answered

    run(test)


def test_one_batch_larger_than_what_was_asked_for_is_taken_as_its_bytes_come():
    async def test(peer):
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1_000, topics=[])
        peer.connection.submit(request, lambda *_: None, version=12)
        tracemalloc.start()
        peer.stream.on_bytes(memoryview(struct.pack(">ii", 50 * MIB, 2)))
        assert peer.connection.get_buffer() is None
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peer.stream.is_open
        assert most < MIB, "memory grows with the bytes that come"

    run(test)


def test_bytes_that_nobody_has_asked_for_end_the_connection():
    async def test(peer):
        peer.stream.on_bytes(memoryview(struct.pack(">ii", 500, 2)))
        assert not peer.stream.is_open

    run(test)


def test_the_first_answer_is_small():
    async def test():
        peer = Peer()
        asked = asyncio.create_task(peer.connection.negotiate("1", 10.0))
        await asyncio.sleep(0)
        peer.stream.on_bytes(memoryview(struct.pack(">ii", 2 * MIB, 1)))
        with pytest.raises(DisconnectedError, match="frame of"):
            await asked

    asyncio.run(test())


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("TLSV1_ALERT_UNKNOWN_CA", AuthenticationError),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", AuthenticationError),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", AuthenticationError),
        ("TLSV1_ALERT_INTERNAL_ERROR", DisconnectedError),
    ],
)
def test_alert_about_certificate_is_an_authentication_error(reason, expected):
    async def scenario():
        peer = Peer()
        asked = asyncio.create_task(peer.connection.negotiate("1", 10.0))
        await asyncio.sleep(0)
        error = ssl.SSLError(1, f"[SSL: {reason}]")
        error.reason = reason
        peer.stream.close(error)
        with pytest.raises(expected):
            await asked

    asyncio.run(scenario())


# --- hostile and limited servers of SASL ------------------------------------------------------------------------

PASSWORD = "secret password"


class SaslStream(FakeStream):
    """A stream on which each request gets the next answer."""

    def __init__(self, answers, *callbacks):
        super().__init__(*callbacks)
        self.answers = list(enumerate(answers, start=1))

    def send(self, chunks):
        super().send(chunks)
        if self.answers:
            number, (answer, version) = self.answers.pop(0)
            asyncio.get_running_loop().call_soon(self.receive, (answer, version, number))


async def authenticate(streams, *answers):
    """Authenticate with SCRAM at a server that gives these answers."""
    keys = [ApiVersion(api_key=key, min_version=0, max_version=newest) for key, newest in ((17, 1), (36, 2))]
    first, *others = answers
    given = [(ApiVersionsResponse(error_code=0, api_keys=keys), 3), (first, 1), *((each, 2) for each in others)]

    def open_stream(*callbacks):
        streams.append(SaslStream(given, *callbacks))
        return streams[0]

    connection = ClientConnection(asyncio.get_running_loop(), open_stream, "a:1", "test")
    await connection.negotiate("1", 10.0)
    async with asyncio.timeout(60):
        await connection.authenticate(
            lambda: ScramClient(ScramMechanism.SHA_256, "alice", PASSWORD, "0123456789abcdef"), 10.0
        )


def handshake(*mechanisms, code=0):
    return SaslHandshakeResponse(error_code=code, mechanisms=list(mechanisms))


def sasl_answer(message=b"", code=0, text=None):
    return SaslAuthenticateResponse(error_code=code, error_message=text, auth_bytes=message, session_lifetime_ms=0)


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ([handshake("PLAIN", code=33)], "it offers PLAIN"),
        ([handshake(code=33)], "it offers no mechanism"),
        ([handshake("SCRAM-SHA-256"), sasl_answer(b"")], "first SCRAM message is invalid"),
        ([handshake("SCRAM-SHA-256"), sasl_answer(b"v=AAAA")], "first SCRAM message is invalid"),
        ([handshake("SCRAM-SHA-256"), sasl_answer(b"r=0123456789abcdef,s=AAAA,i=4096")], "does not extend"),
        ([handshake("SCRAM-SHA-256"), sasl_answer(b"r=0123456789abcdefx,s=AAAA,i=99999999")], "iterations"),
        ([handshake("SCRAM-SHA-256"), sasl_answer(b"r=0123456789abcdefx,s=AAAA,i=1")], "iterations"),
        (
            [
                handshake("SCRAM-SHA-256"),
                sasl_answer(b"r=0123456789abcdefx,s=AAAA,i=4096"),
                sasl_answer(b"v=" + b"A" * 43 + b"="),
            ],
            "does not know the password",
        ),
        ([handshake("SCRAM-SHA-256"), sasl_answer(code=58, text="no\n" * 1_000)], "rejects SCRAM-SHA-256: no"),
    ],
)
def test_client_never_falls_back_to_a_weaker_mechanism_or_an_unproved_server(answers, text):
    streams = []
    with pytest.raises(AuthenticationError) as caught:
        asyncio.run(authenticate(streams, *answers))
    assert text in str(caught.value)
    assert len(str(caught.value)) < 1_000
    assert PASSWORD.encode() not in b"".join(streams[0].sent)


HEARTBEAT_REQUEST = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def test_requests_wait_while_the_client_authenticates_again():
    """The session may end while the authentication waits for an earlier request."""

    async def scenario():
        peer = await Peer().negotiate()
        connection, stream = peer.connection, peer.stream
        connection._versions |= {17: range(2), 36: range(3)}
        answers, clients = [], []

        def new_client():
            clients.append(PlainClient("alice", PASSWORD))
            return clients[-1]

        async def sent(count):
            while len(stream.sent) < count:  # noqa: ASYNC110  the client creates its messages on threads
                await asyncio.sleep(0)

        first = asyncio.create_task(connection.authenticate(new_client, 10.0))
        await sent(1)
        stream.receive((handshake("PLAIN"), 1, 2))
        await sent(2)
        last = sasl_answer()
        last.session_lifetime_ms = 1
        stream.receive((last, 2, 3))
        await first
        await sent(3)
        assert read_request_header(stream.sent[2][4:]).api_key == 17
        assert connection.in_flight == 1

        connection.submit(HEARTBEAT_REQUEST, lambda *answer: answers.append(answer))
        connection.post(HEARTBEAT_REQUEST)
        connection.flush()
        assert (len(stream.sent), connection.in_flight) == (3, 3)
        stream.receive((handshake("PLAIN"), 1, 4))
        await sent(4)
        assert read_request_header(stream.sent[3][4:]).api_key == 36
        stream.receive((sasl_answer(), 2, 5))
        await sent(5)
        assert connection.in_flight == 1
        stream.receive((HeartbeatResponse(error_code=0), 4, 6))
        assert [error for _, error in answers] == [None]
        return connection

    asyncio.run(scenario())


def test_requests_that_wait_for_an_authentication_fail_with_it():
    async def scenario():
        peer = await Peer().negotiate()
        connection, stream = peer.connection, peer.stream
        connection._held = []
        answers = []
        connection.submit(HEARTBEAT_REQUEST, lambda *answer: answers.append(answer))
        connection.post(HEARTBEAT_REQUEST)
        stream.close(ConnectionResetError("reset"))
        assert [type(error) for _, error in answers] == [DisconnectedError]
        with pytest.raises(DisconnectedError):
            connection.submit(HEARTBEAT_REQUEST, None)

    asyncio.run(scenario())


def throttled(number, time_ms):
    return HeartbeatResponse(error_code=0, throttle_time_ms=time_ms), 4, number


async def until_progress(connection):
    progress = asyncio.Event()
    connection.on_progress = progress.set
    await progress.wait()


def test_client_sends_nothing_for_the_time_that_a_response_contains():
    async def test(peer):
        connection, stream = peer.connection, peer.stream
        first = connection.send_soon(heartbeat())
        stream.receive(throttled(2, 30))
        assert (await first).throttle_time_ms == 30
        stream.sent.clear()
        later = [connection.send_soon(heartbeat(number)) for number in range(2)]
        await asyncio.sleep(0)
        assert stream.sent == []
        assert connection.in_flight == 2
        await until_progress(connection)
        stream.receive(ok(3), ok(4))
        await asyncio.gather(*later)
        connection.send_soon(heartbeat())
        assert len(stream.sent) == 2

    run(test)


def test_longest_throttle_time_counts():
    async def test(peer):
        connection, stream = peer.connection, peer.stream
        for _ in range(2):
            connection.send_soon(heartbeat())
        stream.receive(throttled(2, 3_600_000), throttled(3, 1))
        stream.sent.clear()
        connection.send_soon(heartbeat())
        await asyncio.sleep(0.01)
        assert stream.sent == []

    run(test)


def test_request_that_waits_too_long_fails_and_the_connection_stays_open():
    async def test(peer):
        connection, stream = peer.connection, peer.stream
        connection.send_soon(heartbeat())
        stream.receive(throttled(2, 3_600_000))
        stream.sent.clear()
        patient = connection.send_soon(heartbeat(), timeout_s=7_200)
        with pytest.raises(TimedOutError, match="because of a quota of this client"):
            await connection.send(heartbeat(), timeout_s=0.01)
        assert connection.is_open
        assert not patient.done()
        connection.close()
        with pytest.raises(DisconnectedError):
            await patient
        assert stream.sent == []

    run(test)


def test_request_that_nobody_waits_for_any_more_is_not_sent():
    async def test(peer):
        connection, stream = peer.connection, peer.stream
        connection.send_soon(heartbeat())
        stream.receive(throttled(2, 20))
        stream.sent.clear()
        connection.send_soon(heartbeat(1)).cancel()
        kept = connection.send_soon(heartbeat(2))
        await until_progress(connection)
        assert len(stream.sent) == 1
        stream.receive(ok(3))
        await kept

    run(test)


def test_closed_connection_leaves_no_timer():
    async def test(peer):
        connection, stream = peer.connection, peer.stream
        connection.send_soon(heartbeat())
        stream.receive(throttled(2, 3_600_000))
        timer = connection._throttle_timer
        connection.close()
        assert timer.cancelled()
        assert connection._throttle_timer is None
        assert not stream.is_open

    run(test)
