"""The permissions of the REST interface: all routes, without a permission and with all but one."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("uvicorn")

from barnabas.clock import ManualClock
from barnabas.registry import authorization, changes, routes
from barnabas.registry.authentication import ClientAuthentication
from barnabas.registry.authorization import ACCESS, Access, Route, Scope, check_routes
from barnabas.registry.http_server import Request, Response
from barnabas.registry.requests import SchemaRequest
from barnabas.registry.routes import ROUTES, RestApi
from barnabas.registry.service import Service
from barnabas.registry.state import AVRO, Content, Reference, RegistryState
from barnabas.registry.subject_acls import SubjectAcls
from barnabas.security.acls import (
    CLUSTER_NAME,
    OPERATIONS_ON,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.authorizer import Acls, Authorizer
from barnabas.security.principal import Principal, PrincipalMapping
from barnabas.security.security_log import HttpSecurityLog
from tests.tidy.test_tidy import ROOT

ALICE = Principal("User", "alice")
QUIET = HttpSecurityLog("registry", ManualClock().monotonic)
SECRET = "hidden-value"
OPEN_SUBJECT = "clicks-value"
MISSING = "no-such-subject"
SCHEMA = '{"type":"record","name":"Hidden","fields":[]}'
OTHER = '{"type":"record","name":"Clicks","fields":[]}'
BODIES = {
    "/config": {"compatibility": "FULL"},
    "/mode": {"mode": "READONLY"},
}


class UnusedTopic:
    """A topic that accepts every change, and remembers it."""

    def __init__(self) -> None:
        self.appended: list[Any] = []

    async def catch_up(self) -> None:
        pass

    async def append(self, records: Iterable[Any]) -> None:
        self.appended += records

    async def repair(self) -> None:
        pass


class UnusedWork:
    """Returns schemas unchanged, and finds all compatible."""

    async def run(self, what: str, *arguments: Any) -> Any:
        return [] if what == "compare" else arguments[0].text


class Alice:
    async def principal_of(self, _request: Request) -> Principal:
        return ALICE


class FixedAcls:
    def __init__(self, bindings: Iterable[AclBinding]) -> None:
        self._authorizer = Authorizer(Acls(bindings))

    async def authorizer(self) -> Authorizer:
        return self._authorizer


class Api:
    """The REST interface over a state with two subjects, one of which refers to the other."""

    def __init__(
        self, bindings: Iterable[AclBinding] | None, authentication: routes.Authentication | None = None
    ) -> None:
        self.state = RegistryState()
        self.topic = UnusedTopic()
        for subject, content in {
            SECRET: Content(AVRO, SCHEMA),
            OPEN_SUBJECT: Content(AVRO, OTHER, (Reference("Hidden", SECRET, 1),)),
        }.items():
            for record in changes.register(self.state, subject, SchemaRequest(content)).records:
                self.state.apply(record)
        for record in changes.set_config(self.state, SECRET, {"compatibilityLevel": "NONE"}).records:
            self.state.apply(record)
        service = Service(self.state, cast(Any, self.topic), cast(Any, UnusedWork()))
        acls = None if bindings is None else cast(SubjectAcls, FixedAcls(bindings))
        self._rest = RestApi(service, authentication or Alice(), acls)

    def ask(self, method: str, path: str, body: Any = None, query: dict[str, str] | None = None) -> tuple[int, Any]:
        content = b"" if body is None else json.dumps(body).encode()
        response: Response = asyncio.run(self._rest.answer(Request(method, path, query or {}, {}, content, "10.0.0.1")))
        return response.status, json.loads(response.body)


def allow(kind: ResourceType, name: str, *operations: Operation, prefixed: bool = False) -> Iterator[AclBinding]:
    pattern = ResourcePattern(kind, name, PatternType.PREFIXED if prefixed else PatternType.LITERAL)
    for operation in operations:
        yield AclBinding(pattern, AclEntry(str(ALICE), "*", operation, Permission.ALLOW))


def on_subjects(*operations: Operation) -> list[AclBinding]:
    return list(allow(ResourceType.SUBJECT, "*", *operations))


def request_of(route: Route, subject: str) -> tuple[str, str, Any]:
    """Return the method, path and body of a request to a route."""
    method, path = route
    filled = path.replace("{subject}", subject).replace("{version}", "1").replace("{id}", "1")
    body = None
    if method in ("POST", "PUT"):
        body = next((each for start, each in BODIES.items() if path.startswith(start)), {"schema": SCHEMA})
    return method, filled, body


def all_but(access: Access) -> list[AclBinding]:
    """Return the ACLs that allow everything that does not include the operation of a route."""
    implying = {
        Operation.DESCRIBE: set(Operation),
        Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS},
    }.get(access.operation, {access.operation})
    on_cluster = access.scope is Scope.CLUSTER
    subject_operations = OPERATIONS_ON[ResourceType.SUBJECT] - (set() if on_cluster else implying)
    cluster_operations = OPERATIONS_ON[ResourceType.CLUSTER] - (implying if on_cluster else set())
    if access.operation is Operation.DESCRIBE and not on_cluster:
        subject_operations = {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}
    return [
        *on_subjects(*subject_operations),
        *allow(ResourceType.CLUSTER, CLUSTER_NAME, *cluster_operations),
    ]


def assert_reveals_nothing(api: Api, route: Route, access: Access) -> None:
    """Check that a request is refused in the same way for existing and for missing subjects, without an effect."""
    answers = []
    for subject in (SECRET, MISSING):
        status, answer = api.ask(*request_of(route, subject))
        answers.append((status, json.dumps(answer).replace(subject, "SUBJECT")))
        assert SCHEMA not in json.dumps(answer)
        if access.scope is Scope.VISIBLE:
            assert (status, answer) in ((200, []), (200, ["."]))
        else:
            assert (status, answer["error_code"]) == (403, 40301)
            assert answer["message"].startswith(f"User is denied operation {access.operation.label} on ")
    assert answers[0] == answers[1]
    assert api.topic.appended == []


GUARDED = [(route, access) for route, access in ACCESS.items() if access.scope is not Scope.NOTHING]


@pytest.mark.parametrize(("route", "access"), GUARDED, ids=lambda each: " ".join(each) if each in ACCESS else "")
def test_client_without_permissions_gets_nothing(route: Route, access: Access) -> None:
    assert_reveals_nothing(Api([]), route, access)


@pytest.mark.parametrize(("route", "access"), GUARDED, ids=lambda each: " ".join(each) if each in ACCESS else "")
def test_client_with_all_permissions_but_one_gets_nothing(route: Route, access: Access) -> None:
    assert_reveals_nothing(Api(all_but(access)), route, access)


@pytest.mark.parametrize(("route", "access"), ACCESS.items(), ids=lambda each: " ".join(each) if each in ACCESS else "")
def test_client_with_the_permission_of_a_route_may_use_it(route: Route, access: Access) -> None:
    bindings = on_subjects(access.operation)
    if access.scope is Scope.CLUSTER:
        bindings = list(allow(ResourceType.CLUSTER, CLUSTER_NAME, access.operation))
    status, answer = Api(bindings).ask(*request_of(route, SECRET))
    assert status not in (401, 403), answer


@pytest.mark.parametrize("route", ACCESS, ids=" ".join)
def test_client_without_credentials_gets_401_at_every_route(route: Route) -> None:
    api = Api([], ClientAuthentication(None, PrincipalMapping.parse("DEFAULT"), ManualClock(), QUIET))
    answers = [api.ask(*request_of(route, subject)) for subject in (SECRET, MISSING)]
    assert answers == [(401, {"error_code": 401, "message": "Unauthorized"})] * 2
    assert api.topic.appended == []


def test_every_route_has_an_entry_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    check_routes((each.method, each.path) for each in ROUTES)
    monkeypatch.setattr(routes, "ROUTES", [*ROUTES, routes.Route("GET", "/new", re.compile("/new"), cast(Any, None))])
    with pytest.raises(ValueError, match="/new"):
        Api(None)


def test_table_in_the_documentation_is_complete() -> None:
    page = (Path(ROOT) / "docs/how-to/registry.md").read_text()
    shown = set(re.findall(r"^\| `(\w+) (/[^`]*)` \| ([^|]*) \| ([^|]*) \|$", page, re.MULTILINE))
    assert shown == {
        (method, path, "" if access.scope is Scope.NOTHING else access.operation.label, access.scope.value)
        for (method, path), access in ACCESS.items()
    }


def test_lists_show_only_what_a_client_may_describe() -> None:
    api = Api(allow(ResourceType.SUBJECT, "clicks-", Operation.READ, prefixed=True))
    assert api.ask("GET", "/subjects") == (200, [OPEN_SUBJECT])
    assert [each["subject"] for each in api.ask("GET", "/schemas")[1]] == [OPEN_SUBJECT]
    assert Api(None).ask("GET", "/subjects")[1] == [OPEN_SUBJECT, SECRET]


def test_schema_id_of_hidden_subjects_looks_like_a_missing_one() -> None:
    api = Api(allow(ResourceType.SUBJECT, OPEN_SUBJECT, Operation.READ))
    hidden, missing = (api.ask("GET", f"/schemas/ids/{number}") for number in (1, 99))
    assert hidden == (404, {"error_code": 40403, "message": "Schema 1 not found"})
    assert missing == (404, {"error_code": 40403, "message": "Schema 99 not found"})
    assert api.ask("GET", "/schemas/ids/2")[1]["schema"] == OTHER
    assert api.ask("GET", "/schemas/ids/1/versions")[0] == 404


def test_same_schema_in_two_subjects_names_only_the_visible_one() -> None:
    api = Api(allow(ResourceType.SUBJECT, "visible", Operation.READ))
    for record in changes.register(api.state, "visible", SchemaRequest(Content(AVRO, SCHEMA))).records:
        api.state.apply(record)
    shown = api.ask("GET", "/schemas/ids/1", query={"includeSubjects": "true"})
    assert shown == (200, {"subjects": ["visible"], "schema": SCHEMA})
    assert api.ask("GET", "/schemas/ids/1/subjects") == (200, ["visible"])
    assert api.ask("GET", "/schemas/ids/1/versions") == (200, [{"subject": "visible", "version": 1}])
    assert api.ask("GET", "/schemas/ids/1", query={"fetchMaxId": "true"})[0] == 403


@pytest.mark.parametrize("path", ["/subjects/mine/versions", "/subjects/mine", "/compatibility/subjects/mine/versions"])
def test_references_need_permission_to_read_their_subject(path: str) -> None:
    api = Api(allow(ResourceType.SUBJECT, "mine", Operation.ALL))
    for subject in (SECRET, MISSING):
        body = {"schema": OTHER, "references": [{"name": "Hidden", "subject": subject, "version": 1}]}
        status, answer = api.ask("POST", path, body)
        assert (status, answer["message"]) == (403, f"User is denied operation Read on Subject: {subject}")


def test_resolved_schema_needs_permission_to_read_all_its_references() -> None:
    api = Api(allow(ResourceType.SUBJECT, OPEN_SUBJECT, Operation.READ))
    path = f"/subjects/{OPEN_SUBJECT}/versions/1"
    assert api.ask("GET", path)[0] == 200
    assert api.ask("GET", path, query={"format": "resolved"})[0] == 403
    assert api.ask("GET", f"/subjects/{SECRET}/versions/1/referencedby")[0] == 403


def test_subjects_of_a_context_have_qualified_names() -> None:
    api = Api(allow(ResourceType.SUBJECT, ":.staging:", Operation.WRITE, prefixed=True))
    body = {"schema": SCHEMA}
    assert api.ask("POST", "/contexts/.staging/subjects/a/versions", body)[0] == 200
    assert api.ask("POST", "/subjects/a/versions", body)[0] == 403
    assert api.ask("POST", "/subjects/:.staging:a/versions", body)[0] == 200


def test_header_of_a_proxy_names_no_client() -> None:
    source = Path(authorization.__file__).parent
    for file in source.glob("*.py"):
        assert "forwarded" not in file.read_text().lower().replace("not a forwarded address", ""), file
