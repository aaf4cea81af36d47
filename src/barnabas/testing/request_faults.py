"""The stage of the request pipeline that fails requests. Only the broker program of `barnabas.testing` installs it.

A failed request has no effect: its handler does not run. The response is that of a client without any permission, with
the wanted error in place of the authorization errors, because the rules of authorization know the form of a refusal for
each API. APIs without a refusal (Metadata, ListGroups, ApiVersions and others) only read. Their handlers run, and the
error replaces the error codes in their responses.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barnabas.broker.authorization.access import Access, Check
from barnabas.broker.authorization.rules import Refused, Rule
from barnabas.broker.authorization.table import RULES, rules_by_key
from barnabas.broker.pipeline.call import Call, Reply, Steps
from barnabas.broker.pipeline.chain import Stage
from barnabas.errors import ApiError, ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.security.acls import CLUSTER_NAME, Operation, ResourceType
from barnabas.security.authorizer import Authorizer
from barnabas.security.principal import ANONYMOUS

SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class _NoPermissions(Access):
    """The permissions of a client that may do nothing."""

    def __init__(self) -> None:
        super().__init__(Authorizer(super_users=lambda _principal: False), ANONYMOUS, "")

    def may(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        del operation, kind, name
        return False

    def may_any(self, operation: Operation, kind: ResourceType) -> bool:
        del operation, kind
        return False


class _AnyTopic:
    """Topics for rules: each id has a name, and each topic exists."""

    creates_topics = False

    def name_of_id(self, topic_id: bytes) -> str | None:
        return topic_id.hex()

    def has_topic(self, name: str) -> bool:
        del name
        return True

    def names(self) -> Iterable[str]:
        return ()


@dataclasses.dataclass
class _Failures:
    """The next requests of an API fail with an error."""

    code: ErrorCode
    count: int


class RequestFaults(Stage):
    """Fails the next requests of APIs. Used from the event loop's thread."""

    def __init__(self) -> None:
        self._pending: dict[int, deque[_Failures]] = {}
        self._rules: Mapping[int, Rule] = rules_by_key(RULES)
        self._nobody = _NoPermissions()
        self._settling: dict[int, tuple[Call, ErrorCode]] = {}
        """The calls whose responses get an error, by the identity of the call."""

    def fail_next(self, key: int, code: ErrorCode, count: int) -> None:
        """Let the next requests of an API fail, after those that fail already.

        :param key: the key of the API.
        :param count: the number of requests.
        """
        self._pending.setdefault(key, deque()).append(_Failures(code, count))

    def clear(self) -> None:
        """Let no further request fail."""
        self._pending.clear()

    def left(self) -> dict[int, int]:
        """Return the number of requests that are still to fail, by API key."""
        counts: Counter[int] = Counter()
        for key, failures in self._pending.items():
            counts[key] = sum(each.count for each in failures)
        return dict(counts)

    def passes(self, call: Call, request: Any) -> bool:
        del request
        return call.served.key not in self._pending

    def enter(self, call: Call, request: Any) -> Any:
        if call.has_passed or call.served.key not in self._pending:
            return request
        return self._enter(call, request)

    def _enter(self, call: Call, request: Any) -> Steps[Any]:
        key = call.served.key
        if isinstance(request, FetchRequest) and request.session_epoch > 0:
            code = self._pending[key][0].code
            if code not in SESSION_ERRORS:
                # A request within a session does not name its partitions. The client sends a full request next.
                return Reply(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[]))
            return Reply(FetchResponse(error_code=self._take(key), responses=[]))
        outcome = yield from self._rules[key].check(Check(self._nobody, _AnyTopic(), call.version), request)
        if key not in self._pending:
            return request  # the faults were cleared while the check ran in steps
        code = self._take(key)
        if not isinstance(outcome, Refused):
            self._settling[id(call)] = call, code
            return request
        if outcome.response is None:
            raise ApiError(code, "a test lets this request fail, and the client expects no response")
        return Reply(with_error(outcome.response, code, everywhere=False))

    def settle(self, call: Call, response: Any) -> Any:
        found = self._settling.pop(id(call), None)
        return response if found is None or response is None else with_error(response, found[1], everywhere=True)

    def fail(self, call: Call, error: BaseException) -> None:
        del error
        self._settling.pop(id(call), None)

    def _take(self, key: int) -> ErrorCode:
        failures = self._pending[key]
        first = failures[0]
        first.count -= 1
        if not first.count:
            failures.popleft()
        if not failures:
            del self._pending[key]
        return first.code


def with_error(response: Any, code: ErrorCode, *, everywhere: bool) -> Any:
    """Return a copy of a response with an error.

    :param everywhere: True to set the error in each entry of a response without errors, or in the response itself if it
        has no entries with errors. False to replace the errors of a response.
    """
    if not everywhere:
        return _with_other_error(response, code)
    in_entries = _in_lists(response, lambda entry: _with_own_error(entry, code))
    return in_entries if in_entries != response else _with_own_error(response, code)


def _with_other_error(struct: Any, code: ErrorCode) -> Any:
    own = _with_own_error(struct, code) if getattr(struct, "error_code", 0) else struct
    return _in_lists(own, lambda entry: _with_other_error(entry, code))


def _with_own_error(struct: Any, code: ErrorCode) -> Any:
    if not hasattr(struct, "error_code"):
        return struct
    message = {"error_message": "a test lets this request fail"} if getattr(struct, "error_message", None) else {}
    return dataclasses.replace(struct, error_code=code, **message)


def _in_lists(struct: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of a struct with changed entries of its lists."""
    lists = {field.name: getattr(struct, field.name) for field in dataclasses.fields(struct)}
    changed = {
        name: [change(each) for each in entries]
        for name, entries in lists.items()
        if isinstance(entries, list) and entries and dataclasses.is_dataclass(entries[0])
    }
    return dataclasses.replace(struct, **changed)
