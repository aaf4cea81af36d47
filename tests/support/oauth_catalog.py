"""A REST catalog of Iceberg tables that enforces OAuth2, as Polaris and Lakekeeper do.

Clients get a token for their id and secret (client credentials), in the body or with Basic authentication. Every other
request needs a token that has not expired, and a change of a table needs a client that may write. The tables are in
pyiceberg's SQL catalog, or in another REST catalog behind this one. The answers for a table may contain credentials of
the storage ("vended credentials").
"""

from __future__ import annotations

import base64
import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import Request, urlopen

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import new_table_metadata

from barnabas.clock import Clock, ManualClock

TOKENS = "/v1/oauth/tokens"
TOKEN_SECONDS = 3600
BODY_BYTES_MAX = 16 * 1024 * 1024
LEVELS = "\x1f"
"""The separator of the levels of a namespace in an address."""
Answer = tuple[int, Any]
Upstream = Callable[[str, str, bytes], Answer]
STATUS_OF = {
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
}


@dataclass
class OAuthCatalog:
    """The state of the server, which a test may change.

    :param upstream: Answers an authorised request: a method, a path and a body.
    :param clients: The ids and secrets.
    :param readers: The ids that may change nothing.
    :param makes_namespaces: False forbids everyone to create namespaces.
    :param endpoints: The endpoints that the server says it has; empty for the usual ones.
    :param defaults: The properties that the server gives to clients; `overrides` replace the clients' own.
    :param vended: The credentials of the storage in each answer for a table.
    """

    upstream: Upstream
    clients: dict[str, str] = field(
        default_factory=lambda: {"loader": "s3cret-of-loader", "reader": "s3cret-of-reader"}
    )
    readers: frozenset[str] = frozenset({"reader"})
    makes_namespaces: bool = True
    endpoints: Sequence[str] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    vended: Mapping[str, str] = field(default_factory=dict)
    clock: Clock = field(default_factory=ManualClock)
    address: str = ""
    tokens: dict[str, tuple[str, float]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    token_answer: Answer | None = None
    """The answer of the token server instead of a token."""

    def token_for(self, client: str) -> str:
        """Return a new token."""
        token = f"token-{secrets.token_hex(16)}"
        self.tokens[token] = (client, self.clock.time_s() + TOKEN_SECONDS)
        return token

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Answer a request."""
        path = urlsplit(target).path
        self.requests.append(f"{method} {path}")
        if path == TOKENS:
            return self.token_answer or self._token(headers, body)
        kind, _, token = headers.get("Authorization", "").partition(" ")
        client, expires_s = self.tokens.get(token, ("", 0.0)) if kind == "Bearer" else ("", 0.0)
        if not client:
            return error_answer(401, "NotAuthorizedException", "the token is not valid")
        if expires_s <= self.clock.time_s():
            return error_answer(401, "NotAuthorizedException", "the token has expired")
        if client in self.readers and method not in ("GET", "HEAD"):
            return error_answer(403, "ForbiddenException", f"{client} has no permission for {method} {path}")
        if not self.makes_namespaces and (method, path) == ("POST", "/v1/namespaces"):
            return error_answer(403, "ForbiddenException", f"{client} may not create namespaces")
        status, content = self.upstream(method, target, body)
        if path == "/v1/config" and status == 200:
            for kind, own in (("defaults", self.defaults), ("overrides", self.overrides)):
                content = {**content, kind: {**content.get(kind, {}), **own}}
            content |= {"endpoints": list(self.endpoints)} if self.endpoints else {}
        if self.vended and isinstance(content, dict) and "metadata" in content:
            location = content["metadata"]["location"]
            config = {**content.get("config", {}), **self.vended}
            entry = {"prefix": location, "config": dict(self.vended)}
            content = {**content, "config": config, "storage-credentials": [entry]}
        return status, content

    def _token(self, headers: Mapping[str, str], body: bytes) -> Answer:
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        client, secret = form.get("client_id", ""), form.get("client_secret", "")
        kind, _, encoded = headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            client, _, secret = base64.b64decode(encoded).decode().partition(":")
        if form.get("grant_type") != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        if self.clients.get(client) != secret:
            return 401, {"error": "invalid_client", "error_description": "unknown client or wrong secret"}
        return 200, {"access_token": self.token_for(client), "token_type": "bearer", "expires_in": TOKEN_SECONDS}


def error_answer(status: int, kind: str, message: str) -> Answer:
    return status, {"error": {"message": message, "type": kind, "code": status}}


class SqlTables:
    """The tables behind the server, in a folder. Thread-safe."""

    def __init__(self, folder: Path, warehouse: str | None = None, **properties: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._warehouse = warehouse or f"file://{folder}/tables"
        self._catalog = SqlCatalog(
            "behind", uri=f"sqlite:///{folder}/behind.db", warehouse=self._warehouse, **properties
        )
        self._lock = threading.Lock()

    def __call__(self, method: str, target: str, body: bytes) -> Answer:
        """Answer a request."""
        path = [unquote(part) for part in urlsplit(target).path.split("/")[2:]]
        with self._lock:
            try:
                return self._answer(method, path, body)
            except tuple(STATUS_OF) as error:
                return error_answer(STATUS_OF[type(error)], type(error).__name__, str(error))

    def _answer(self, method: str, path: list[str], body: bytes) -> Answer:
        match method, path:
            case "GET", ["config"]:
                answer: Any = {"defaults": {}, "overrides": {}}
            case "POST", ["namespaces"]:
                levels = json.loads(body)["namespace"]
                self._catalog.create_namespace(tuple(levels))
                answer = {"namespace": levels, "properties": {}}
            case (("GET" | "HEAD"), ["namespaces", namespace]):
                self._catalog.load_namespace_properties(tuple(namespace.split(LEVELS)))
                answer = {"namespace": namespace.split(LEVELS), "properties": {}}
            case "POST", ["namespaces", namespace, "tables"]:
                asked = CreateTableRequest.model_validate({"location": None, **json.loads(body)})
                answer = self._create((*namespace.split(LEVELS),), asked)
            case (("GET" | "HEAD"), ["namespaces", namespace, "tables", name]):
                answer = self._table((*namespace.split(LEVELS), name))
            case "POST", ["namespaces", namespace, "tables", name]:
                changes = CommitTableRequest.model_validate_json(body)
                answer = self._commit((*namespace.split(LEVELS), name), changes)
            case _:
                return error_answer(404, "NotFoundException", "no such endpoint")
        return 200, answer

    def _table(self, name: tuple[str, ...]) -> Any:
        table = self._catalog.load_table(name)
        metadata = json.loads(table.metadata.model_dump_json())
        return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}

    def _create(self, namespace: tuple[str, ...], asked: CreateTableRequest) -> Any:
        self._catalog.load_namespace_properties(namespace)
        assert asked.stage_create, "loads create tables with their first commit"
        metadata = new_table_metadata(
            asked.table_schema,
            asked.partition_spec,
            asked.write_order,
            asked.location or f"{self._warehouse}/{'/'.join(namespace)}/{asked.name}",
            dict(asked.properties),
        )
        return {"metadata": json.loads(metadata.model_dump_json()), "config": {}}

    def _commit(self, name: tuple[str, ...], asked: CommitTableRequest) -> Any:
        named: Any = SimpleNamespace(name=lambda: name)
        done = self._catalog.commit_table(named, asked.requirements, asked.updates)
        return json.loads(done.model_dump_json())


def forwarding_to(address: str) -> Upstream:
    """Return an upstream that is another REST catalog, at an address."""

    def forward(method: str, target: str, body: bytes) -> Answer:
        request = Request(
            address + target, data=body or None, method=method, headers={"Content-Type": "application/json"}
        )
        try:
            with urlopen(request, timeout=60) as answer:
                status, content = answer.status, answer.read()
        except HTTPError as error:
            status, content = error.code, error.read()
        return status, json.loads(content) if content else None

    return forward


@contextmanager
def running_oauth_catalog(catalog: OAuthCatalog) -> Iterator[OAuthCatalog]:
    """Serve a catalog at a free port until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(min(length, BODY_BYTES_MAX))
            status, content = catalog.answer(self.command, self.path, self.headers, body)
            encoded = b"" if content is None or self.command == "HEAD" else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(encoded)))
            with suppress(ConnectionError):  # a client that waits no longer
                self.end_headers()
                self.wfile.write(encoded)

        do_GET = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815  # the names of http.server

        def log_message(self, *_arguments: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        catalog.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield catalog
        finally:
            server.shutdown()
            thread.join()
