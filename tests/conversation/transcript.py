"""What connections sent and received: kept in a file, compared with another run, and counted.

`compare` shows the first answer that differs, decoded. `expected_counts` returns how many requests of each kind a
counter in the broker must have seen.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import lzma
import pprint
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.errors import BarnabasError
from barnabas.protocol.apis import declared_apis
from barnabas.protocol.codec import API_VERSIONS_KEY, decode_request, decode_response, read_request_header
from barnabas.protocol.declare import fields_of

SHOWN_LINES_MAX = 80
SHOWN_BYTES_MAX = 80
FORMAT = 1
_SIZE_AND_ID = struct.Struct(">ii")


@dataclass(slots=True)
class Exchange:
    """A request that was sent.

    :ivar key: of the API; None for bytes that are no request.
    :ivar frame: with its size.
    :ivar closes: whether the broker is expected to end the connection over it.
    :ivar missing_bytes: how much of the frame was not sent.
    """

    key: int | None
    version: int
    correlation_id: int
    client_id: str | None
    frame: bytes
    wants_answer: bool
    closes: bool
    missing_bytes: int = 0


@dataclass(slots=True)
class LineRecord:
    """What was sent and received on one connection.

    :ivar listener: at which the connection arrived.
    :ivar exchanges: in the order in which they were sent; empty if this was read from a file.
    :ivar answers: the frames that came, with their sizes.
    :ivar times_ms: the virtual time at which each of them was complete; -1 where that is not compared.
    :ivar closed_ms: when the connection ended; None if it lasted.
    :ivar is_left: whether the client ended it.
    :ivar rest: bytes of an answer that never became whole.
    :ivar sent_digest: of all bytes that were sent.
    """

    name: str
    listener: str
    exchanges: list[Exchange] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)
    closed_ms: int | None = None
    is_left: bool = False
    rest: bytes = b""
    _digest: str = ""
    _by_id: dict[int, bytes] = field(default_factory=dict)

    @property
    def sent_digest(self) -> str:
        if not self._digest:
            digest = hashlib.sha256()
            for each in self.exchanges:
                digest.update(each.frame)
            self._digest = digest.hexdigest()[:16]
        return self._digest

    def on_answer(self, frame: bytes, time_ms: int) -> None:
        self.answers.append(frame)
        self.times_ms.append(time_ms)
        self._by_id[_SIZE_AND_ID.unpack_from(frame)[1]] = frame

    def answer_to(self, exchange: Exchange) -> bytes | None:
        """Return the whole frame that answers a request; None if none came."""
        return self._by_id.get(exchange.correlation_id)


# --- files ------------------------------------------------------------------------------------------------


def recording(scene: str) -> Path:
    """Return the file with the recording of a scene."""
    return Path(__file__).with_name("recorded") / f"{scene}.xz"


def save(path: Path, lines: Sequence[LineRecord], commit: str) -> None:
    """Write what the connections received, and the commit whose code answered."""
    index = {
        "format": FORMAT,
        "commit": commit,
        "lines": [
            {
                "name": line.name,
                "listener": line.listener,
                "sent": line.sent_digest,
                "sizes": [len(answer) for answer in line.answers],
                "times_ms": line.times_ms,
                "closed_ms": line.closed_ms,
                "rest": line.rest.hex(),
            }
            for line in lines
        ],
    }
    head = json.dumps(index, separators=(",", ":")).encode()
    body = b"".join(answer for line in lines for answer in line.answers)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lzma.compress(struct.pack(">i", len(head)) + head + body, preset=9))


def load(path: Path) -> tuple[str, list[LineRecord]]:
    """Return the commit and what the connections received.

    :raises ValueError: the file has another format.
    """
    data = lzma.decompress(path.read_bytes())
    (head_size,) = struct.unpack_from(">i", data)
    position = 4 + head_size
    index = json.loads(data[4:position])
    if index["format"] != FORMAT:
        raise ValueError(f"{path} has format {index['format']}, not {FORMAT}; record it again")
    lines = []
    for each in index["lines"]:
        line = LineRecord(each["name"], each["listener"], closed_ms=each["closed_ms"], rest=bytes.fromhex(each["rest"]))
        line._digest = each["sent"]
        for size, time_ms in zip(each["sizes"], each["times_ms"], strict=True):
            line.answers.append(data[position : position + size])
            line.times_ms.append(time_ms)
            position += size
        lines.append(line)
    return index["commit"], lines


# --- comparison -------------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """Where a connection differs from the recording.

    :ivar time_ms: when.
    :ivar text: what differs, decoded.
    """

    time_ms: int
    text: str


def compare(recorded: Sequence[LineRecord], now: Sequence[LineRecord]) -> str:
    """Return what differs, the earliest difference in full; empty if nothing does."""
    names = [line.name for line in recorded]
    if names != [line.name for line in now]:
        return _diff("connections", "\n".join(names), "\n".join(line.name for line in now))
    found = [difference for old, new in zip(recorded, now, strict=True) if (difference := _difference(old, new))]
    if not found:
        return ""
    first, *others = sorted(found, key=lambda each: each.time_ms)
    if others:
        return f"{first.text}\n{len(others)} other connections differ, later"
    return first.text


def _difference(old: LineRecord, new: LineRecord) -> Difference | None:
    if (old.answers, old.times_ms, old.closed_ms, old.rest) == (new.answers, new.times_ms, new.closed_ms, new.rest):
        if old.sent_digest == new.sent_digest:
            return None
        return Difference(2**40, f"{new.name}: other requests were sent, and answered alike; record again")
    for number, (was, is_now) in enumerate(zip(old.answers, new.answers, strict=False)):
        times = old.times_ms[number], new.times_ms[number]
        if was != is_now:
            return Difference(times[1], f"{_where(new, number, times[1])}\n{_answers_diff(new, was, is_now)}")
        if times[0] != times[1]:
            return Difference(
                times[1],
                f"{_where(new, number, times[1])}\nthe same answer came at {times[1]} ms, not at {times[0]} ms",
            )
    return _difference_at_end(old, new)


def _difference_at_end(old: LineRecord, new: LineRecord) -> Difference:
    count = min(len(old.answers), len(new.answers))
    if len(old.answers) > count:
        text = f"this answer is missing:\n{describe(new, old.answers[count])}"
        return Difference(old.times_ms[count], f"{_where(new, count, old.times_ms[count])}\n{text}")
    if len(new.answers) > count:
        text = f"this answer was not recorded:\n{describe(new, new.answers[count])}"
        return Difference(new.times_ms[count], f"{_where(new, count, new.times_ms[count])}\n{text}")
    moments = _moment(old.closed_ms), _moment(new.closed_ms)
    text = f"{new.name}: the connection ended {moments[1]}, recorded {moments[0]}"
    if old.rest != new.rest:
        text += f"; part of an answer: {old.rest!r} recorded, {new.rest!r} now"
    return Difference(max(old.closed_ms or 0, new.closed_ms or 0), text)


def _moment(time_ms: int | None) -> str:
    return "never" if time_ms is None else f"at {time_ms} ms"


def _where(line: LineRecord, number: int, time_ms: int) -> str:
    when = "" if time_ms < 0 else f" at {time_ms} ms"
    return f"{line.name} ({line.listener}), answer {number}{when}:"


def _answers_diff(line: LineRecord, was: bytes, is_now: bytes) -> str:
    texts = describe(line, was), describe(line, is_now)
    request = _request_of(line, is_now) or _request_of(line, was)
    asked = "no request has this correlation id" if request is None else describe_request(request)
    if texts[0] == texts[1]:
        position = next((n for n, pair in enumerate(zip(was, is_now, strict=False)) if pair[0] != pair[1]), -1)
        texts = was.hex(" ", 4), is_now.hex(" ", 4)
        asked += f"\nthe answers decode alike, and differ from byte {position}"
    return f"request: {asked}\n{_diff('answer', *texts)}"


def _diff(what: str, was: str, is_now: str) -> str:
    lines = list(
        difflib.unified_diff(was.splitlines(), is_now.splitlines(), f"{what} recorded", f"{what} now", "", "", 3, "")
    )
    if len(lines) > SHOWN_LINES_MAX:
        lines[SHOWN_LINES_MAX:] = [f"... and {len(lines) - SHOWN_LINES_MAX} more lines"]
    return "\n".join(line[:400] for line in lines)


def _request_of(line: LineRecord, answer: bytes) -> Exchange | None:
    correlation_id = _SIZE_AND_ID.unpack_from(answer)[1]
    return next((each for each in line.exchanges if each.correlation_id == correlation_id), None)


def describe(line: LineRecord, answer: bytes) -> str:
    """Return an answer as text, decoded if its request is known."""
    request = _request_of(line, answer)
    if request is not None:
        message = decode_answer(request, answer)
        if message is not None:
            return _as_text(message)
    return f"{len(answer)} bytes: {answer[:400].hex(' ', 4)}"


def describe_request(exchange: Exchange) -> str:
    """Return a request as text."""
    if exchange.key is None or exchange.key not in declared_apis():
        return f"{len(exchange.frame)} bytes: {exchange.frame[:200].hex(' ', 4)}"
    api = declared_apis()[exchange.key]
    head = f"{api.name} version {exchange.version}, correlation id {exchange.correlation_id}"
    frame = exchange.frame[4:]
    try:
        text = _as_text(decode_request(api.request, read_request_header(frame), frame))
    except BarnabasError as error:
        return f"{head}: {error}"
    lines = text.splitlines()
    if len(lines) > SHOWN_LINES_MAX:
        lines[SHOWN_LINES_MAX:] = [f"... and {len(lines) - SHOWN_LINES_MAX} more lines"]
    return "\n".join([head, *lines])


def answered_version(exchange: Exchange) -> int:
    """Return the version of the answer to a request: of an unknown version of ApiVersions it is 0 (KIP-511)."""
    if exchange.key == API_VERSIONS_KEY and exchange.version not in declared_apis()[API_VERSIONS_KEY].versions:
        return 0
    return exchange.version


def decode_answer(exchange: Exchange, answer: bytes) -> Any:
    """Return the decoded message of an answer; None if the schemas do not know it."""
    api = declared_apis().get(-1 if exchange.key is None else exchange.key)
    if api is None:
        return None
    try:
        return decode_response(api.response, answered_version(exchange), memoryview(answer)[4:])
    except BarnabasError:
        return None


def _as_text(message: Any) -> str:
    return pprint.pformat(_plain(message), width=110, sort_dicts=False)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {type(value).__name__: {each.name: _plain(getattr(value, each.name)) for each in fields(value)}}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        digest = hashlib.sha256(data).hexdigest()[:12]
        return data if len(data) <= SHOWN_BYTES_MAX else f"{len(data)} bytes, sha256 {digest}, {data[:40].hex()}..."
    return value


# --- counts -----------------------------------------------------------------------------------------------


class CountKey(NamedTuple):
    """What a counting stage of the broker counts by.

    :ivar error_code: of the answer, see `error_code_of`; 0 for a request that wants no answer; None if no answer left
        the broker, because the broker ended the connection over this request or the client left before the answer.
    """

    api_key: int
    version: int
    listener: str
    client_id: str | None
    error_code: int | None


def expected_counts(lines: Iterable[LineRecord]) -> Counter[CountKey]:
    """Return how many requests of each kind the broker has begun, on the connections whose counts are certain.

    Requests behind one over which the broker ended the connection never begin, and do not count; nor do those that
    were not sent whole. Compare with the broker's counts for these client ids: those of the connections that are
    certain, without `uncertain_client_ids`.
    """
    return Counter(key for line in lines if is_certain(line) for key in _count_keys(line))


def uncertain_client_ids(lines: Iterable[LineRecord]) -> set[str | None]:
    """Return the client ids of connections whose counts are not certain; no other connection has them."""
    lines = list(lines)
    uncertain = {each.client_id for line in lines if not is_certain(line) for each in line.exchanges if each.key}
    certain = {each.client_id for line in lines if is_certain(line) for each in line.exchanges}
    assert not uncertain & certain, f"client ids with certain and with uncertain counts: {uncertain & certain}"
    return uncertain


def is_certain(line: LineRecord) -> bool:
    """Return whether it follows from a connection's answers what the broker has done for it.

    It does not where bytes were sent that may be a request or not, and where the client left before all answers.
    """
    if any(each.key is None for each in line.exchanges):
        return False
    return not line.is_left or all(
        line.answer_to(each) for each in line.exchanges if each.wants_answer and not each.missing_bytes
    )


def _count_keys(line: LineRecord) -> Iterator[CountKey]:
    last = _closing_exchange(line)
    for exchange in line.exchanges:
        if exchange.key is not None and not exchange.missing_bytes:
            code = None if exchange is last else _outcome(line, exchange)
            yield CountKey(exchange.key, exchange.version, line.listener, exchange.client_id, code)
        if exchange is last:
            return


def _closing_exchange(line: LineRecord) -> Exchange | None:
    """Return the request over which the broker ended the connection: the one that says so, or else the first without
    an answer, or else the last one if it wants none."""
    if line.closed_ms is None or line.is_left or not line.exchanges:
        return None
    last = line.exchanges[-1]
    found = (each for each in line.exchanges if each.closes)
    unanswered = (each for each in line.exchanges if each.wants_answer and line.answer_to(each) is None)
    return next(found, None) or next(unanswered, None) or (None if last.wants_answer else last)


def _outcome(line: LineRecord, exchange: Exchange) -> int | None:
    if not exchange.wants_answer:
        return 0
    answer = line.answer_to(exchange)
    if answer is None:
        return None
    message = decode_answer(exchange, answer)
    assert message is not None, f"{line.name}: {describe_request(exchange)}\nhas an answer that cannot be decoded"
    return error_code_of(message, answered_version(exchange))


def error_code_of(message: Any, version: int) -> int:
    """Return the error code of the whole answer, or else the first one within it in wire order; 0 if there is none."""
    if any(spec.name == "error_code" and spec.present(version) for spec in fields_of(type(message))):
        return int(message.error_code)
    return next(_error_codes(message, version), 0)


def _error_codes(value: Any, version: int) -> Iterator[int]:
    if isinstance(value, list):
        for each in value:
            yield from _error_codes(each, version)
    elif is_dataclass(value):
        for spec in fields_of(type(value)):
            if not spec.present(version):
                continue
            if spec.name == "error_code":
                yield value.error_code  # type: ignore[attr-defined]
            else:
                yield from _error_codes(getattr(value, spec.name), version)
