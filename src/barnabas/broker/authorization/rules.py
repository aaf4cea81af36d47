"""The kinds of rules: everyone may use an API (`Open`), the request is refused as a whole (`Whole`), or each entry of a
list is refused for itself (`ForEach`). `InOrder` applies several rules.

A rule checks a request in steps, because a request may have thousands of entries. The result is None if the request
passes unchanged, `Refused` if the call ends with a response, or `Partly` if the handler gets a smaller request.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from barnabas.broker.authorization.access import ERROR_OF, NO_SUCH_ID, Check
from barnabas.broker.pipeline.call import Steps, is_pause_due
from barnabas.errors import ErrorCode
from barnabas.security.acls import CLUSTER_NAME, Operation, ResourceType


class Row(NamedTuple):
    """A row of the documentation: an operation that an API needs, on which resource, and the form of a refusal."""

    operation: Operation
    kind: ResourceType
    resource: str
    refusal: str


class Refused(NamedTuple):
    """The call ends with this response. None ends the connection instead, because the client expects no response."""

    response: Any


class Partly(NamedTuple):
    """The handler gets a smaller request.

    :ivar merge: adds the refused entries to the response of the handler.
    """

    request: Any
    merge: Callable[[Any], Any]


Outcome = Refused | Partly | None
Refuse = Callable[[Any, ErrorCode, int], Any]
"""Creates a refusal from a request or an entry of one, the error, and the version."""


def message_of(code: ErrorCode) -> str:
    """Return the error message of a refused request, or a part of one."""
    if code is ErrorCode.UNKNOWN_TOPIC_ID:
        return NO_SUCH_ID
    return f"{code.name.removesuffix('_FAILED').replace('_', ' ').lower()} failed"


def with_results(response: Any, results: str, more: Sequence[Any]) -> Any:
    """Return a copy of a response with more entries in one of its lists.

    :param results: the name of the list.
    """
    return dataclasses.replace(response, **{results: [*getattr(response, results), *more]})


class Rule:
    """A rule of the table. Subclasses override the methods that they need.

    :ivar rows: the documentation of the rule.
    """

    rows: tuple[Row, ...] = ()

    def check(self, check: Check, request: Any) -> Steps[Outcome]:
        """Check a request. It must not change, because it may be a template."""
        del check, request
        return None
        yield

    def filter(self, check: Check, response: Any) -> Steps[Any]:
        """Remove what the client may not see from a response, and return the response."""
        del check
        return response
        yield

    filters_late = False
    """True if `filter` is called only if the ACLs have changed since the check."""


class Open(Rule):
    """Everyone may use the API."""


@dataclasses.dataclass(frozen=True)
class Whole(Rule):
    """The request needs an operation on one resource, and is refused as a whole.

    :param refuse: creates the response of a refused request, from the request, the error and the version.
    :param name: returns the name of the resource; None if the request needs no permission. The default is the cluster.
    """

    operation: Operation
    kind: ResourceType
    refuse: Refuse
    name: Callable[[Any], str | None] = lambda _request: CLUSTER_NAME
    resource: str = ""
    refusal: str = "the whole request"

    @property
    def rows(self) -> tuple[Row, ...]:  # type: ignore[override]
        named = self.resource or ("the cluster" if self.kind is ResourceType.CLUSTER else f"the {_text(self.kind)}")
        return (Row(self.operation, self.kind, named, self.refusal),)

    def check(self, check: Check, request: Any) -> Steps[Outcome]:
        name = self.name(request)
        if name is None or check.permits(self.operation, self.kind, name):
            return None
        return Refused(self.refuse(request, ERROR_OF[self.kind], check.version))
        yield


@dataclasses.dataclass(frozen=True)
class ForEach(Rule):
    """Each entry of a list needs an operation on its own resource. The other entries are processed.

    An entry with an unknown topic id is refused, too. Otherwise the handler could process it without a check, because
    the broker may learn of the topic a moment later.

    :param entries: the name of the list in the request. A list that is None passes.
    :param name: returns the name of the resource of an entry; None for an unknown topic id.
    :param results: the name of the list in the response.
    :param refused: creates the entry of the response, from the entry of the request, the error and the version.
    :param respond: creates a response without results. It is used if all entries are refused.
    :param unless: an operation on the cluster that allows all entries.
    """

    entries: str
    operation: Operation
    kind: ResourceType
    name: Callable[[Any, Check], str | None]
    results: str
    refused: Refuse
    respond: Callable[[], Any]
    unless: Operation | None = None
    resource: str = ""
    refusal: str = ""

    @property
    def rows(self) -> tuple[Row, ...]:  # type: ignore[override]
        text = _text(self.kind)
        row = Row(self.operation, self.kind, self.resource or f"each {text}", self.refusal or f"each {text}")
        if self.unless is None:
            return (row,)
        return (row._replace(resource=f"{row.resource}, or {self.unless.name} on the cluster"),)

    def check(self, check: Check, request: Any) -> Steps[Outcome]:
        entries = getattr(request, self.entries)
        if not entries or (self.unless is not None and check.access.may(self.unless, ResourceType.CLUSTER)):
            return None
        allowed, refused = [], []
        for number, entry in enumerate(entries):
            if is_pause_due(number):
                yield
            kind, name = self.need(entry, check)
            if name is None:
                is_allowed, code = check.is_at_once, ErrorCode.UNKNOWN_TOPIC_ID
            else:
                is_allowed, code = check.permits(self.operation, kind, name), ERROR_OF[kind]
            if is_allowed:
                allowed.append(entry)
            else:
                refused.append(self.refused(entry, code, check.version))
        return self.outcome(request, allowed, refused)

    def need(self, entry: Any, check: Check) -> tuple[ResourceType, str | None]:
        """Return the type and the name of the resource of an entry. The name is None for an unknown topic id."""
        return self.kind, self.name(entry, check)

    def outcome(self, request: Any, allowed: list[Any], refused: list[Any]) -> Outcome:
        """Return the result of a check."""
        if not refused:
            return None
        if not allowed:
            return Refused(with_results(self.respond(), self.results, refused))
        smaller = dataclasses.replace(request, **{self.entries: allowed})
        return Partly(smaller, lambda found: with_results(found, self.results, refused))


class InOrder(Rule):
    """Several rules that do not filter responses. The request must pass each of them.

    A later rule checks the part that an earlier one has left.
    """

    def __init__(self, *rules: Rule) -> None:
        self._rules = rules
        self.rows = tuple(row for rule in rules for row in rule.rows)

    def check(self, check: Check, request: Any) -> Steps[Outcome]:
        merges: list[Callable[[Any], Any]] = []
        for rule in self._rules:
            outcome = yield from rule.check(check, request)
            if isinstance(outcome, Refused):
                return Refused(_merged(outcome.response, merges))
            if outcome is not None:
                request = outcome.request
                merges.append(outcome.merge)
        return Partly(request, lambda response: _merged(response, merges)) if merges else None


def _merged(response: Any, merges: Sequence[Callable[[Any], Any]]) -> Any:
    for merge in reversed(merges):
        response = merge(response)
    return response


def _text(kind: ResourceType) -> str:
    return kind.name.lower().replace("_", " ")
