"""The REST interface: maps Confluent's paths and methods to operations, and formats their responses."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote

from barnabas import __version__
from barnabas.registry import changes, content_types, contexts
from barnabas.registry.authorization import ACCESS, Caller, check_routes
from barnabas.registry.errors import RegistryError
from barnabas.registry.http_server import Request, Response
from barnabas.registry.records import decode_json
from barnabas.registry.requests import (
    SchemaRequest,
    parse_config,
    parse_id,
    parse_mode,
    parse_subject,
    parse_version,
)
from barnabas.registry.service import Service
from barnabas.registry.state import AVRO, Content, Version
from barnabas.registry.subject_acls import SubjectAcls
from barnabas.security.acls import Operation
from barnabas.security.http_authentication import CHALLENGE
from barnabas.security.principal import Principal

BYTES_AT_ONCE = 1_000_000
"""The number of response bytes that are encoded before other requests get a turn."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request with its parsed path."""

    service: Service
    request: Request
    names: Mapping[str, str]
    context: str
    caller: Caller

    @property
    def subject(self) -> str:
        """The subject in the path, qualified with its context."""
        return contexts.qualified(self.context, self.names["subject"])

    @property
    def version(self) -> int | None:
        """The version in the path; None means the latest."""
        return parse_version(self.names["version"])

    @property
    def id(self) -> int:
        """The schema id in the path."""
        return parse_id(self.names["id"])

    @property
    def id_context(self) -> str:
        """The context in which the schema id is valid."""
        given = self.request.query.get("subject", "")
        return contexts.context_of(given) if given.startswith(":.") else self.context

    def flag(self, name: str) -> bool:
        """Return whether a query parameter is true."""
        return self.request.query.get(name, "").lower() == "true"

    def body(self) -> Any:
        """Return the JSON value of the body.

        :raises RegistryError: the body is not valid JSON (400), or empty (422).
        """
        if not self.request.body.strip():
            raise RegistryError.invalid_body("the body is empty; it must be a JSON object")
        try:
            return decode_json(self.request.body)
        except ValueError as error:
            raise RegistryError(400, f"the body is not valid JSON: {error}") from error

    def schema_request(self) -> SchemaRequest:
        """Return the schema in the body, whose references the client may read.

        :raises RegistryError: the body contains no schema, or the client may not read a referenced subject (40301).
        """
        request = SchemaRequest.of(self.body())
        for reference in request.content.references:
            home = contexts.qualified(contexts.context_of(self.subject), reference.subject)
            self.caller.check_subject(Operation.READ, home)
        return request


Handler = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """An HTTP method and a path, with their handler."""

    method: str
    path: str
    pattern: re.Pattern[str]
    handler: Handler


ROUTES: list[Route] = []


def route(method: str, path: str) -> Callable[[Handler], Handler]:
    """Register a handler for a path; `{name}` in the path matches one segment."""
    pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))

    def register(handler: Handler) -> Handler:
        ROUTES.append(Route(method, path, pattern, handler))
        return handler

    return register


class Authentication(Protocol):
    """Authenticates requests."""

    async def principal_of(self, request: Request, /) -> Principal:
        """Return the principal of a request.

        :raises RegistryError: the client does not authenticate.
        """


NoteRefusal = Callable[[Principal, str, str, str], object]


class RestApi:
    """The REST interface of a registry.

    :param authentication: returns the principal of each request.
    :param acls: returns the authorizer; None if no ACLs apply.
    :param note_refusal: called with the principal, the address, the request and the reason of each refused request.
    """

    def __init__(
        self,
        service: Service,
        authentication: Authentication,
        acls: SubjectAcls | None = None,
        note_refusal: NoteRefusal = lambda *_: None,
    ) -> None:
        check_routes((each.method, each.path) for each in ROUTES)
        self._service = service
        self._authentication = authentication
        self._acls = acls
        self._note_refusal = note_refusal

    async def refuse_stranger(self, request: Request) -> Response | None:
        """Return the response to a client that does not authenticate; None for others."""
        try:
            await self._authentication.principal_of(request)
        except RegistryError as error:
            content_type = content_types.negotiate(request.headers.get("accept", ""))
            return refusal(error.code, error.message, content_type or content_types.V1)
        return None

    async def answer(self, request: Request) -> Response:
        """Return the response to a request; errors are also converted to responses."""
        content_type = content_types.negotiate(request.headers.get("accept", ""))
        try:
            principal = await self._authentication.principal_of(request)
            authorizer = None if self._acls is None else await self._acls.authorizer()
        except RegistryError as error:
            return refusal(error.code, error.message, content_type or content_types.V1)
        if content_type is None:
            return refusal(406, "HTTP 406 Not Acceptable")
        if not content_types.is_supported(request.headers.get("content-type", "")):
            return refusal(415, "HTTP 415 Unsupported Media Type", content_type)
        try:
            return await self._answer(request, content_type, Caller(principal, request.address, authorizer))
        except RegistryError as error:
            if error.status == HTTPStatus.FORBIDDEN:
                self._note_refusal(principal, request.address, f"{request.method} {request.path}", error.message)
            return refusal(error.code, error.message, content_type)

    async def _answer(self, request: Request, content_type: str, caller: Caller) -> Response:
        found, call = self._found(request, caller)
        caller.check(ACCESS[found.method, found.path], call.subject if "subject" in call.names else "")
        answer = await found.handler(call)
        if isinstance(answer, Text):
            return Response(200, answer.encode(), content_type, {})
        if isinstance(answer, list):
            return Response(200, await _encoded_list(answer), content_type, {})
        return _response(200, answer, content_type)

    def _found(self, request: Request, caller: Caller) -> tuple[Route, Call]:
        path, context = request.path.rstrip("/") or "/", contexts.DEFAULT
        if (prefix := re.match(r"/contexts/([^/]+)(/.+)", path)) is not None:
            context, path = unquote(prefix[1]), prefix[2]
            context = context.removeprefix(":").removesuffix(":")
        matches = [(each, found) for each in ROUTES if (found := each.pattern.fullmatch(path)) is not None]
        if not matches:
            raise RegistryError(404, "HTTP 404 Not Found")
        method = "GET" if request.method == "HEAD" else request.method
        chosen = next(((each, found) for each, found in matches if each.method == method), None)
        if chosen is None:
            raise RegistryError(405, "HTTP 405 Method Not Allowed")
        names = {name: unquote(value) for name, value in chosen[1].groupdict().items()}
        return chosen[0], Call(self._service, request, names, context, caller)


class Text(str):
    """A response that is already JSON text."""

    __slots__ = ()


def refusal(code: int, message: str, content_type: str = content_types.V1) -> Response:
    """Return the response for an error."""
    status = code if code < 1000 else code // 100
    headers = {"WWW-Authenticate": CHALLENGE} if status == HTTPStatus.UNAUTHORIZED else {}
    return _response(status, {"error_code": code, "message": message}, content_type, headers)


def _response(status: int, answer: Any, content_type: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, json.dumps(answer, separators=(",", ":")).encode(), content_type, headers or {})


async def _encoded_list(answer: list[Any]) -> bytes:
    """Return a list as JSON. Between the parts of the list, other requests get a turn."""
    parts: list[bytes] = []
    at_once = 0
    for each in answer:
        parts.append(json.dumps(each, separators=(",", ":")).encode())
        at_once += len(parts[-1])
        if at_once > BYTES_AT_ONCE:
            at_once = 0
            await asyncio.sleep(0)
    return b"[" + b",".join(parts) + b"]"


# --- subjects and versions ------------------------------------------------------------------------------


async def _shown(call: Call, version: Version) -> dict[str, Any]:
    shown: dict[str, Any] = {"subject": version.subject, "version": version.version, "id": version.id}
    return shown | await _shown_content(call, contexts.context_of(version.subject), version.content)


async def _shown_content(call: Call, context: str, content: Content) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if content.schema_type != AVRO:
        shown["schemaType"] = content.schema_type
    if content.references:
        shown["references"] = [each.as_json() for each in content.references]
    if content.extras:
        shown |= json.loads(content.extras)
    form = call.request.query.get("format", "")
    if form:  # the formatted text may contain the schemas that this one refers to
        for subject in call.service.referenced_subjects(context, content):
            call.caller.check_subject(Operation.READ, subject)
    shown["schema"] = await call.service.formatted(context, content, form)
    return shown


def _page(call: Call, found: list[Any]) -> list[Any]:
    try:
        offset, limit = int(call.request.query.get("offset", 0)), int(call.request.query.get("limit", -1))
    except ValueError:
        raise RegistryError(404, "HTTP 404 Not Found") from None
    start = max(offset, 0)
    return found[start:] if limit < 0 else found[start : start + limit]


@route("GET", "/subjects")
async def list_subjects(call: Call) -> Any:
    """Return the subjects with a prefix."""
    prefix = contexts.qualified(call.context, call.request.query.get("subjectPrefix", ""))
    found = call.service.state.subjects(prefix, deleted=call.flag("deleted"), deleted_only=call.flag("deletedOnly"))
    return _page(call, call.caller.visible(Operation.DESCRIBE, found))


@route("POST", "/subjects/{subject}")
async def look_up(call: Call) -> Any:
    """Return the version of a subject that equals a schema."""
    found = await call.service.look_up(
        call.subject, call.schema_request(), normalize=call.flag("normalize"), deleted=call.flag("deleted")
    )
    return await _shown(call, found)


@route("DELETE", "/subjects/{subject}")
async def delete_subject(call: Call) -> Any:
    """Delete all versions of a subject."""
    return await call.service.change(
        lambda state: changes.delete_subject(state, call.subject, permanent=call.flag("permanent"))
    )


@route("GET", "/subjects/{subject}/versions")
async def list_versions(call: Call) -> Any:
    """Return the version numbers of a subject."""
    deleted, deleted_only = call.flag("deleted"), call.flag("deletedOnly")
    found = call.service.state.versions(call.subject, deleted=deleted or deleted_only)
    if not found:
        raise RegistryError.subject_not_found(call.subject)
    return _page(call, [each.version for each in found if each.deleted or not deleted_only])


@route("POST", "/subjects/{subject}/versions")
async def register(call: Call) -> Any:
    """Register a schema as the next version of a subject."""
    parse_subject(call.subject)
    return await call.service.register(call.subject, call.schema_request(), normalize=call.flag("normalize"))


@route("GET", "/subjects/{subject}/versions/{version}")
async def show_version(call: Call) -> Any:
    """Return a version of a subject."""
    version = call.version
    return await _shown(call, call.service.state.version(call.subject, version, deleted=call.flag("deleted")))


@route("GET", "/subjects/{subject}/metadata")
async def show_version_with_metadata(call: Call) -> Any:
    """Return the latest version, among the versions of a subject, whose metadata has the given property."""
    wanted = call.request.query
    for version in reversed(call.service.state.versions(call.subject, deleted=call.flag("deleted"))):
        extras = json.loads(version.content.extras) if version.content.extras else {}
        properties = (extras.get("metadata") or {}).get("properties") or {}
        if wanted.get("key") is None or properties.get(wanted["key"]) == wanted.get("value"):
            return await _shown(call, version)
    raise RegistryError.schema_not_found()


@route("DELETE", "/subjects/{subject}/versions/{version}")
async def delete_version(call: Call) -> Any:
    """Delete a version of a subject."""
    number = call.version
    return await call.service.change(
        lambda state: changes.delete_version(state, call.subject, number, permanent=call.flag("permanent"))
    )


@route("GET", "/subjects/{subject}/versions/{version}/schema")
async def show_schema_of_version(call: Call) -> Any:
    """Return only the schema of a version."""
    version = call.version
    return Text((await _shown(call, call.service.state.version(call.subject, version)))["schema"])


@route("GET", "/subjects/{subject}/versions/{version}/referencedby")
async def list_referrers(call: Call) -> Any:
    """Return the ids of the schemas that refer to a version."""
    found = call.service.state.version(call.subject, call.version, deleted=True)
    context = contexts.context_of(call.subject)
    ids = call.service.state.referrers(call.subject, found.version, deleted=call.flag("deleted"))
    return _page(call, [each for each in ids if _readable_versions(call, context, each)])


# --- schemas by id --------------------------------------------------------------------------------------


@route("GET", "/schemas")
async def list_schemas(call: Call) -> Any:
    """Return all versions, or the latest ones, of the subjects with a prefix."""
    prefix = contexts.qualified(call.context, call.request.query.get("subjectPrefix", ""))
    deleted = call.flag("deleted")
    found = []
    for subject in call.caller.visible(Operation.READ, call.service.state.subjects(prefix, deleted=deleted)):
        versions = call.service.state.versions(subject, deleted=deleted)
        found += versions[-1:] if call.flag("latestOnly") else versions
    return [await _shown(call, each) for each in _page(call, found)]


@route("GET", "/schemas/types")
async def list_types(_call: Call) -> Any:
    """Return the schema types."""
    return ["JSON", "PROTOBUF", "AVRO"]


def _readable_versions(call: Call, context: str, schema_id: int) -> list[Version]:
    """Return the versions with a schema id, including deleted ones, that the client may read."""
    found = call.service.state.versions_of_id(context, schema_id, deleted=True)
    return [each for each in found if call.caller.may(Operation.READ, each.subject)]


def _readable_content(call: Call) -> Content:
    """Return the schema with the id in the path, from a subject that the client may read.

    :raises RegistryError: there is no such schema, or the client may not read it (40403).
    """
    if call.caller.authorizer is None:
        return call.service.state.content(call.id_context, call.id)
    readable = _readable_versions(call, call.id_context, call.id)
    if not readable:
        raise RegistryError.schema_not_found(call.id)
    return readable[0].content


@route("GET", "/schemas/ids/{id}")
async def show_schema(call: Call) -> Any:
    """Return the schema with an id."""
    content = _readable_content(call)
    shown = await _shown_content(call, call.id_context, content)
    if call.flag("fetchMaxId"):
        if not call.caller.may_on_cluster(Operation.DESCRIBE):
            raise RegistryError.denied(Operation.DESCRIBE.label, "Cluster")
        shown["maxId"] = call.service.state.last_id(call.id_context)
    if call.flag("includeSubjects"):
        found = {each.subject for each in call.service.state.versions_of_id(call.id_context, call.id)}
        shown["subjects"] = call.caller.visible(Operation.DESCRIBE, sorted(found))
    return shown


@route("GET", "/schemas/ids/{id}/schema")
async def show_schema_alone(call: Call) -> Any:
    """Return the text of the schema with an id."""
    content = _readable_content(call)
    return Text((await _shown_content(call, call.id_context, content))["schema"])


@route("GET", "/schemas/ids/{id}/subjects")
async def list_subjects_of_schema(call: Call) -> Any:
    """Return the subjects that have a schema."""
    return _page(call, sorted({each.subject for each in _homes(call)}))


@route("GET", "/schemas/ids/{id}/versions")
async def list_versions_of_schema(call: Call) -> Any:
    """Return the versions that equal a schema."""
    return _page(call, [{"subject": each.subject, "version": each.version} for each in _homes(call)])


def _homes(call: Call) -> list[Version]:
    _readable_content(call)
    found = call.service.state.versions_of_id(call.id_context, call.id, deleted=call.flag("deleted"))
    wanted = call.request.query.get("subject")
    return [
        each
        for each in found
        if (wanted is None or each.subject == wanted) and call.caller.may(Operation.DESCRIBE, each.subject)
    ]


# --- compatibility, settings, modes ---------------------------------------------------------------------


async def _judged(call: Call, *, all_versions: bool) -> Any:
    number = None if all_versions else call.version
    request = call.schema_request()
    reasons = await call.service.check_compatibility(call.subject, number, request, all_versions=all_versions)
    answer: dict[str, Any] = {"is_compatible": not reasons}
    return answer | {"messages": reasons} if reasons or call.flag("verbose") else answer


@route("POST", "/compatibility/subjects/{subject}/versions/{version}")
async def check_with_version(call: Call) -> Any:
    """Return whether a schema is compatible with a version."""
    return await _judged(call, all_versions=False)


@route("POST", "/compatibility/subjects/{subject}/versions")
async def check_with_all_versions(call: Call) -> Any:
    """Return whether a schema is compatible with the versions that the subject's compatibility level requires."""
    return await _judged(call, all_versions=True)


def _shown_config(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != "subject"}


@route("GET", "/config")
async def show_config(call: Call) -> Any:
    """Return the global settings, which apply to all subjects that have no settings."""
    return {"compatibilityLevel": "BACKWARD", **_shown_config(call.service.state.configs.get(None, {}))}


@route("PUT", "/config")
async def set_config(call: Call) -> Any:
    """Change global settings."""
    config = parse_config(call.body())
    return await call.service.change(lambda state: changes.set_config(state, None, config))


@route("DELETE", "/config")
async def delete_config(call: Call) -> Any:
    """Reset the global settings to the defaults."""
    deleted = await call.service.change(lambda state: changes.delete_config(state, None))
    return {"compatibilityLevel": "BACKWARD", **deleted}


@route("GET", "/config/{subject}")
async def show_config_of_subject(call: Call) -> Any:
    """Return the settings of a subject."""
    own = call.service.state.configs.get(call.subject)
    if own is None and not call.flag("defaultToGlobal"):
        raise RegistryError.no_compatibility_of(call.subject)
    level = call.service.level(call.subject).upper()
    return {"compatibilityLevel": level, **_shown_config(own or call.service.state.configs.get(None, {}))}


@route("PUT", "/config/{subject}")
async def set_config_of_subject(call: Call) -> Any:
    """Change settings of a subject."""
    config, subject = parse_config(call.body()), parse_subject(call.subject)
    return await call.service.change(lambda state: changes.set_config(state, subject, config))


@route("DELETE", "/config/{subject}")
async def delete_config_of_subject(call: Call) -> Any:
    """Delete the settings of a subject, to which the global settings then apply."""
    return await call.service.change(lambda state: changes.delete_config(state, call.subject))


@route("GET", "/mode")
async def show_mode(call: Call) -> Any:
    """Return the global mode, which applies to all subjects that have no mode."""
    return {"mode": call.service.state.modes.get(None, "READWRITE")}


@route("PUT", "/mode")
async def set_mode(call: Call) -> Any:
    """Change the global mode."""
    mode = parse_mode(call.body())
    return await call.service.change(lambda state: changes.set_mode(state, None, mode, force=call.flag("force")))


@route("GET", "/mode/{subject}")
async def show_mode_of_subject(call: Call) -> Any:
    """Return the mode of a subject."""
    own = call.service.state.modes.get(call.subject)
    if own is None and not call.flag("defaultToGlobal"):
        raise RegistryError.no_mode_of(call.subject)
    return {"mode": own or call.service.state.mode(call.subject)}


@route("PUT", "/mode/{subject}")
async def set_mode_of_subject(call: Call) -> Any:
    """Change the mode of a subject."""
    mode, subject = parse_mode(call.body()), parse_subject(call.subject)
    return await call.service.change(lambda state: changes.set_mode(state, subject, mode, force=call.flag("force")))


@route("DELETE", "/mode/{subject}")
async def delete_mode_of_subject(call: Call) -> Any:
    """Delete the mode of a subject, to which the global mode then applies."""
    return await call.service.change(lambda state: changes.delete_mode(state, call.subject))


# --- about the registry ---------------------------------------------------------------------------------


@route("GET", "/")
async def show_nothing(_call: Call) -> Any:
    """Return an empty object; clients send this request to check whether a registry is running."""
    return {}


@route("GET", "/contexts")
async def list_contexts(call: Call) -> Any:
    """Return the contexts."""
    if call.caller.authorizer is None:
        return _page(call, call.service.state.contexts())
    visible = call.caller.visible(Operation.DESCRIBE, call.service.state.subjects(":*:", deleted=True))
    return _page(call, sorted({contexts.DEFAULT, *map(contexts.context_of, visible)}))


@route("GET", "/v1/metadata/version")
async def show_release(_call: Call) -> Any:
    """Return the release of the registry."""
    return {"version": __version__, "commitId": ""}


@route("GET", "/v1/metadata/id")
async def show_cluster(_call: Call) -> Any:
    """Return the id of the registry."""
    return {"scope": {"path": [], "clusters": {"schema-registry-cluster": "schema-registry"}}, "id": ""}
