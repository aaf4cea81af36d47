"""The stage of the pipeline that checks each request by the rules of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barnabas.broker.authorization.access import ERROR_OF, NO_SUCH_ID, Access, Check, KnownTopics, Need
from barnabas.broker.authorization.rules import Refused, Rule
from barnabas.broker.pipeline.call import Call, Reply, Steps
from barnabas.broker.pipeline.chain import Stage
from barnabas.broker.security_log import RequestSource
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.security.acls import Operation
from barnabas.security.authorizer import Authorizer

NoteRefusal = Callable[[RequestSource, Operation, str, str], object]
"""Receives the sender of a request, an operation that is not allowed, the resource, and the deciding rule."""

NOTED_MAX = 5
"""The maximum number of refused operations of a request that are noted."""


def check_complete(rules: Mapping[int, Rule], served: Iterable[int]) -> None:
    """Check that each served API has a rule. A broker does not start without this check.

    :raises BarnabasError: an API has no rule.
    """
    missing = sorted(set(served) - rules.keys())
    if missing:
        raise BarnabasError(
            f"no rule of authorization for the APIs {missing}; the broker does not serve them unchecked"
        )


class Authorization(Stage):
    """Checks requests by the permissions of their clients.

    :param rules: the rules, by API key.
    :param note_refusal: called for the first refused operations of each request.
    """

    def __init__(
        self,
        authorizer: Authorizer,
        topics: KnownTopics,
        rules: Mapping[int, Rule],
        note_refusal: NoteRefusal = lambda _source, _operation, _resource, _rule: None,
    ) -> None:
        self._authorizer = authorizer
        self._topics = topics
        self._rules = rules
        self._note_refusal = note_refusal
        self._filtering = frozenset(key for key, rule in rules.items() if type(rule).filter is not Rule.filter)

    def passes(self, call: Call, request: Any) -> bool:
        """Return whether the client has all permissions that a request needs."""
        access = self._access(call)
        call.note_access(access)
        check = Check(access, self._topics, call.version, is_at_once=True)
        steps = self._rules[call.served.key].check(check, request)
        try:
            while True:  # requests of runs and of templates are small
                next(steps)
        except StopIteration as end:
            return end.value is None

    def enter(self, call: Call, request: Any) -> Any:
        return request if call.has_passed else self._enter(call, request)

    def _enter(self, call: Call, request: Any) -> Steps[Any]:
        access = self._access(call)
        check = Check(access, self._topics, call.version)
        outcome = yield from self._rules[call.served.key].check(check, request)
        if check.refused:
            self._note(call, check.refused)
        if outcome is None:
            call.note_access(access)
            return request
        if isinstance(outcome, Refused):
            if outcome.response is None:
                raise refusal(check.refused)
            return Reply(outcome.response)
        call.note_access(access, outcome.merge)
        return outcome.request

    def settle(self, call: Call, response: Any) -> Any:
        access = call.access
        if access is None:  # the call was refused as a whole
            return response
        if call.merge is None and call.served.key not in self._filtering:
            return response
        return self._settle(call, access, response)

    def _settle(self, call: Call, access: Access, response: Any) -> Steps[Any]:
        rule = self._rules[call.served.key]
        if response is not None and call.served.key in self._filtering:
            if not rule.filters_late:
                response = yield from rule.filter(Check(access, self._topics, call.version), response)
            elif access.is_outdated:
                # The ACLs have changed while the request waited.
                check = Check(self._access(call), self._topics, call.version)
                response = yield from rule.filter(check, response)
                if check.refused:
                    self._note(call, check.refused)
        return response if call.merge is None else call.merge(response)

    def _note(self, call: Call, refused: list[Need]) -> None:
        principal, host = call.connection.principal, call.connection.host
        for operation, kind, name in refused[:NOTED_MAX]:
            rule = self._authorizer.decide(principal, host, operation, kind, name).reason
            self._note_refusal(call.source, operation, f"{kind.name.lower()}:{name}", rule)

    def _access(self, call: Call) -> Access:
        connection = call.connection
        access = connection.access
        if access is None or not access.is_for(connection.principal):
            access = connection.access = Access(self._authorizer, connection.principal, connection.host)
        return access


def refusal(needs: list[Need]) -> ApiError:
    """Return the error that ends the connection of a client that expects no response.

    :param needs: the operations that are not allowed; none if the client names unknown topic ids only.
    """
    if not needs:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, NO_SUCH_ID)
    need = needs[0]
    return ApiError(
        ERROR_OF[need.kind], f"{need.operation.name} on {need.kind.name.lower()} {need.name!r} is not allowed"
    )
