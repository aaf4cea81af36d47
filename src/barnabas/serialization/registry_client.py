"""The client of a schema registry, for serializers. Its calls block. The client is thread-safe and caches responses.
The schema of an id and the id of a registered schema never change, so each is requested once. The latest version of a
subject is cached for 60 s.
"""

from __future__ import annotations

import base64
import functools
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.errors import ConfigurationError, SchemaRegistryError, TimedOutError
from barnabas.security.oauthbearer import is_token
from barnabas.security.secret_sources import read_secret
from barnabas.security.secrets import Secret
from barnabas.serialization import http_calls
from barnabas.serialization.registry_settings import RegistrySettings, without_user

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
HEADERS = {"Content-Type": CONTENT_TYPE, "Accept": CONTENT_TYPE}
ATTEMPT_S = 10.0
PAUSE_S = 0.1
REMEMBERED_MAX = 10_000
LATEST_S = 60.0
NO_SUCH_SCHEMA = 40403
DEPENDENCIES_MAX = 1_000
DEPENDENCIES_CHARACTERS_MAX = 64 * 1024 * 1024
SHOWN_LETTERS_MAX = 200

T = TypeVar("T")
Transport = Callable[[str, str, bytes | None, Mapping[str, str], float], tuple[int, bytes, Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A reference from one schema to another.

    :param name: the name that the schema uses for the other schema.
    :param subject: the subject of the other schema.
    :param version: the version of the other schema in its subject.
    """

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        """Return the reference as JSON for the registry's API."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema.

    :param text: the text of the schema.
    :param kind: AVRO, JSON or PROTOBUF.
    :param references: the schemas that this schema refers to.
    """

    text: str
    kind: str = AVRO
    references: tuple[SchemaReference, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the schema as JSON for the registry's API."""
        references = [each.as_json() for each in self.references]
        return {"schema": self.text, "schemaType": self.kind} | ({"references": references} if references else {})


class SchemaRegistry:
    """A client of a schema registry.

    :param url: `https://host:port`; several URLs are separated by commas and tried in turn. A URL may contain a user
        and a password: `https://user:password@host:port`.
    :param username, password: the credentials for all URLs. A secret may name its source instead: `${file:PATH}`,
        `${env:NAME}` or `${command:PROGRAM ARGUMENTS}`.
    :param token: a bearer token, its source, or a function that returns it; called for each request.
    :param ssl_cafile: a PEM file with the trusted CAs; None for those of the operating system.
    :param ssl_certfile, ssl_keyfile: the certificate of this client in PEM files.
    :param ssl_password: the password of an encrypted key.
    :param timeout_s: the timeout of a call with all its retries, in seconds.

    Each call raises SchemaRegistryError if the registry rejects the request, and TimedOutError if no registry responds.

        registry = barnabas.SchemaRegistry("http://localhost:8081")
        producer = barnabas.Producer(value_serializer=barnabas.AvroSerializer(registry, schema))
    """

    def __init__(
        self,
        url: str = "http://localhost:8081",
        *,
        username: str | None = None,
        password: str | None = None,
        token: str | Callable[[], str] | None = None,
        ssl_cafile: str | None = None,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
        ssl_password: str | None = None,
        timeout_s: float = 30.0,
        clock: Clock = SYSTEM_CLOCK,
        transport: Transport = http_calls.call,
    ) -> None:
        self._servers = [_Server.of(each.strip()) for each in url.split(",") if each.strip()]
        if not self._servers:
            raise ConfigurationError("give the url of a schema registry, for example 'http://localhost:8081'")
        has_token_function = callable(token)
        settings = RegistrySettings(
            url,
            username,
            password,
            None if callable(token) else token,
            ssl_cafile,
            ssl_certfile,
            ssl_keyfile,
            ssl_password,
        )
        if has_token_function and username is not None:
            raise ConfigurationError("give a schema registry a username and a password, or a token, but not both")
        self._credentials = _Credentials.of(settings, token if callable(token) else None)
        if self._credentials.is_given and any(each.authorization for each in self._servers):
            raise ConfigurationError("give the user of a schema registry in its URL or as username, but not both")
        if transport is http_calls.call:
            transport = _transport(settings, self._servers)
        self._timeout_s = timeout_s
        self._clock = clock
        self._transport = transport
        self._pause = threading.Event()
        self._schemas: _Remembered[Schema] = _Remembered()
        self._ids: _Remembered[int] = _Remembered()
        self._latest: _Remembered[tuple[float, int, Schema]] = _Remembered()
        self._homes: _Remembered[bool] = _Remembered()
        self._versions: _Remembered[Schema] = _Remembered()

    def schema(self, schema_id: int, *, form: str = "") -> Schema:
        """Return the schema with an id.

        :param form: `serialized` requests a Protobuf schema as a base64 descriptor; "" requests the text.
        """
        path = f"/schemas/ids/{schema_id}{f'?format={form}' if form else ''}"
        return self._schemas.get((schema_id, form), lambda: self._ask(_schema, "GET", path))

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Register a schema as a new version of a subject, unless the subject already has it. Return the id of the
        schema.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions{'?normalize=true' if normalize else ''}"
        return self._ids.get(
            ("register", subject, schema, normalize), lambda: self._ask(_number("id"), "POST", path, schema)
        )

    def id_of(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Return the id of a schema that is a version of a subject."""
        path = f"/subjects/{quote(subject, safe='')}{'?normalize=true' if normalize else ''}"
        return self._ids.get(
            ("look up", subject, schema, normalize), lambda: self._ask(_number("id"), "POST", path, schema)
        )

    def version_of(self, subject: str, schema: Schema) -> int:
        """Return the version number of a schema in a subject."""
        path = f"/subjects/{quote(subject, safe='')}"
        return self._ids.get(("version", subject, schema), lambda: self._ask(_number("version"), "POST", path, schema))

    def is_version_of(self, subject: str, schema_id: int) -> bool:
        """Return whether the schema with an id is a version of a subject. Only a result of True is cached."""

        def ask() -> bool:
            try:
                return self._ask(_has_subject(subject), "GET", f"/schemas/ids/{schema_id}/versions")
            except SchemaRegistryError as error:
                if error.code == NO_SUCH_SCHEMA:
                    return False
                raise

        return self._homes.get((subject, schema_id), ask)

    def versions_with(self, schema_id: int) -> list[tuple[str, int]]:
        """Return the subjects that have the schema with an id, with the version numbers."""

        def read(answer: Any) -> list[tuple[str, int]]:
            return sorted((str(each["subject"]), int(each["version"])) for each in answer)

        return self._ask(read, "GET", f"/schemas/ids/{schema_id}/versions")

    def latest(self, subject: str) -> tuple[int, Schema]:
        """Return the id and the schema of the latest version of a subject. The result is at most 60 s old."""

        def ask() -> tuple[float, int, Schema]:
            path = f"/subjects/{quote(subject, safe='')}/versions/latest"
            found_id, found = self._ask(lambda answer: (_number("id")(answer), _schema(answer)), "GET", path)
            return self._clock.monotonic(), found_id, found

        asked_at, schema_id, schema = self._latest.get(subject, ask)
        if self._clock.monotonic() - asked_at > LATEST_S:
            self._latest.forget(subject)
            _, schema_id, schema = self._latest.get(subject, ask)
        return schema_id, schema

    def version(self, subject: str, number: int, *, form: str = "") -> tuple[int, Schema]:
        """Return the number and the schema of a version of a subject, including deleted versions."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{number}?deleted=true{f'&format={form}' if form else ''}"
        return number, self._versions.get((subject, number, form), lambda: self._ask(_schema, "GET", path))

    def subjects(self) -> list[str]:
        """Return the names of all subjects that the client may see, sorted."""
        return self._ask(lambda answer: sorted(str(each) for each in answer), "GET", "/subjects")

    def versions(self, subject: str) -> list[int]:
        """Return the numbers of the versions of a subject, ascending."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        return self._ask(lambda answer: sorted(int(each) for each in answer), "GET", path)

    def incompatibilities(self, subject: str, schema: Schema) -> list[str]:
        """Return the reasons why a schema cannot become a version of a subject; an empty list if it can."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions?verbose=true"
        return self._ask(_reasons, "POST", path, schema)

    def dependencies(self, schema: Schema, *, form: str = "") -> list[tuple[str, str]]:
        """Return the names and texts of all schemas that a schema refers to, directly or indirectly. Each schema
        follows the schemas that it refers to.
        """
        found: dict[tuple[str, int], tuple[str, str]] = {}
        characters = 0

        def visit(references: Sequence[SchemaReference], trail: tuple[tuple[str, int], ...]) -> None:
            nonlocal characters
            for reference in references:
                home = (reference.subject, reference.version)
                if home in found or home in trail:
                    continue
                if len(trail) + len(found) > DEPENDENCIES_MAX:
                    raise SchemaRegistryError(0, f"the schema refers to more than {DEPENDENCIES_MAX} other schemas")
                _, needed = self.version(*home, form=form)
                characters += len(needed.text)
                if characters > DEPENDENCIES_CHARACTERS_MAX:
                    raise SchemaRegistryError(
                        0, f"the referenced schemas have more than {DEPENDENCIES_CHARACTERS_MAX} characters"
                    )
                visit(needed.references, (*trail, home))
                found[home] = (reference.name, needed.text)

        visit(schema.references, ())
        return list(found.values())

    def _ask(self, read: Callable[[Any], T], method: str, path: str, schema: Schema | None = None) -> T:
        """Send a request, and return the part of the response that `read` extracts.

        :raises SchemaRegistryError: if the registry rejects the request, or if the response does not come from a schema
            registry.
        """
        answer = self._call(method, path, None if schema is None else schema.as_json())
        try:
            return read(answer)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            shown = json.dumps(answer)[:SHOWN_LETTERS_MAX]
            raise SchemaRegistryError(
                0, f"the response to {method} {path} is not one of a schema registry ({error!r}): {shown}"
            ) from error

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        deadline = self._clock.monotonic() + self._timeout_s
        attempt = 0
        while True:
            server = self._servers[attempt % len(self._servers)]
            url = server.url
            headers = {**HEADERS, **(server.authorization or self._credentials.headers())}
            attempt += 1
            left = deadline - self._clock.monotonic()
            try:
                status, answer, _ = self._transport(
                    f"{url}{path}", method, content, headers, max(min(ATTEMPT_S, left), PAUSE_S)
                )
                failure = _failure(status, answer)
                if failure is None:
                    return json.loads(answer)
                if status < 500:
                    raise failure
                reason = str(failure)
            except http_calls.UntrustedServerError as error:
                raise SchemaRegistryError(0, f"{url}: {error}; check ssl_cafile, and the host in the URL") from None
            except OSError as error:
                reason = str(error) or repr(error)
            except ValueError as error:
                raise SchemaRegistryError(
                    0, f"the response from {url} is not one of a schema registry: {error}"
                ) from error
            if self._clock.monotonic() + PAUSE_S * attempt >= deadline:
                raise TimedOutError(
                    f"no schema registry responds at {url} within {self._timeout_s:g} s: {reason}; start it, or "
                    "pass the URL of a running registry"
                )
            self._pause.wait(PAUSE_S * attempt)


class _Remembered(Generic[T]):
    """A thread-safe cache of responses with a maximum size."""

    def __init__(self) -> None:
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, ask: Callable[[], T]) -> T:
        found = self._values.get(key)
        if found is not None:
            return found
        value = ask()
        if value is False:  # do not cache False: the schema may become a version of the subject later
            return value
        with self._lock:
            self._values[key] = value
            while len(self._values) > REMEMBERED_MAX:
                self._values.popitem(last=False)
        return value

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._values.pop(key, None)


@dataclass(frozen=True, slots=True)
class _Server:
    """A URL without its user, and the header with that user."""

    url: str
    authorization: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, url: str) -> _Server:
        """Return the server of a URL.

        :raises ConfigurationError: the text is not a URL. The error does not contain a password.
        """
        try:
            parts = urlsplit(url)
            is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
            _ = parts.port
        except ValueError:
            is_url = False
        if not is_url:
            raise ConfigurationError(
                f"{without_user(url)!r} is not a URL of a schema registry; pass 'http://host:port'"
            )
        bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        if parts.username is None:
            return cls(bare, {})
        return cls(bare, _basic(unquote(parts.username), unquote(parts.password or "")))


class _Credentials:
    """The credentials for all servers: what returns the header of a request."""

    def __init__(self, header: Callable[[], Mapping[str, str]] | None) -> None:
        self._header = header

    @classmethod
    def of(cls, settings: RegistrySettings, token: Callable[[], str] | None) -> _Credentials:
        if token is not None:
            return cls(lambda: _bearer(token()))
        if settings.token is not None:
            secret = Secret(settings.token)
            return cls(lambda: _bearer(read_secret("token", secret)))
        if settings.username is None:
            return cls(None)
        username, password = settings.username, Secret(settings.password or "")
        return cls(lambda: _basic(username, read_secret("password", password)))

    @property
    def is_given(self) -> bool:
        return self._header is not None

    def headers(self) -> Mapping[str, str]:
        """Return the header of a request. Secrets are read from their sources again."""
        return {} if self._header is None else self._header()


def _basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def _bearer(token: str) -> dict[str, str]:
    if not is_token(token):
        raise ConfigurationError("the token for the schema registry is not a bearer token")
    return {"Authorization": f"Bearer {token}"}


def _transport(settings: RegistrySettings, servers: Sequence[_Server]) -> Transport:
    """Return the function that sends requests.

    :raises ConfigurationError: a certificate file cannot be used, or there is no HTTPS.
    """
    uses_files = settings.ssl_cafile or settings.ssl_certfile or settings.ssl_keyfile or settings.ssl_password
    if not any(each.url.startswith("https:") for each in servers):
        if uses_files:
            raise ConfigurationError("the ssl_* settings of a schema registry need an https:// URL")
        return http_calls.call
    # Imported here because most clients of registries have no TLS, and start faster without the import.
    from barnabas.net.tls import TlsContext, client_context  # noqa: PLC0415
    from barnabas.security.tls_settings import TlsSettings  # noqa: PLC0415

    password = None if settings.ssl_password is None else Secret(settings.ssl_password)
    tls = TlsContext(
        TlsSettings(
            key_store=settings.ssl_certfile,
            key_file=settings.ssl_keyfile,
            key_password=None if password is None else Secret(read_secret("ssl_password", password)),
            trust_store=settings.ssl_cafile,
        ),
        client_context,
    )
    return functools.partial(http_calls.call, tls=tls)


def registry_of(settings: RegistrySettings, timeout_s: float = 30.0) -> SchemaRegistry:
    """Return a client with these settings.

    :raises ConfigurationError: a setting is not valid.
    """
    return SchemaRegistry(
        settings.url,
        username=settings.username,
        password=settings.password,
        token=settings.token,
        ssl_cafile=settings.ssl_cafile,
        ssl_certfile=settings.ssl_certfile,
        ssl_keyfile=settings.ssl_keyfile,
        ssl_password=settings.ssl_password,
        timeout_s=timeout_s,
    )


def _number(name: str) -> Callable[[Any], int]:
    return lambda answer: int(answer[name])


def _has_subject(subject: str) -> Callable[[Any], bool]:
    return lambda answer: any(each.get("subject") == subject for each in answer)


def _reasons(answer: Any) -> list[str]:
    if bool(answer["is_compatible"]):
        return []
    return [str(each) for each in answer.get("messages") or ()] or ["the schema is not compatible"]


def _schema(found: Mapping[str, Any]) -> Schema:
    references = tuple(
        SchemaReference(each["name"], each["subject"], each["version"]) for each in found.get("references") or ()
    )
    text = found["schema"]
    if not isinstance(text, str):
        raise TypeError("the schema is not text")
    return Schema(text, found.get("schemaType") or AVRO, references)


def _failure(status: int, answer: bytes) -> SchemaRegistryError | None:
    if status < 300:
        return None
    try:
        response = json.loads(answer)
        return SchemaRegistryError(int(response["error_code"]), str(response["message"]))
    except (ValueError, KeyError, TypeError):
        return SchemaRegistryError(status, f"status {status}: {answer[:200]!r}")
