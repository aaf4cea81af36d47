"""The common parts of all pages: the request of a signed-in user, templates, forms, errors, and signing in."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response

from barnabas.clock import SYSTEM_CLOCK
from barnabas.console.cluster_view import text_of
from barnabas.console.config import ConsoleConfig
from barnabas.console.formats import FILTERS
from barnabas.console.record_decoding import RecordDecoding
from barnabas.console.record_text import visible
from barnabas.console.schemas import Schemas
from barnabas.console.sessions import SESSION_S_MAX, Session, Sessions
from barnabas.console.tables import TableReads
from barnabas.errors import ApiError, AuthenticationError, BarnabasError, ErrorCode, SchemaRegistryError

FOLDER = Path(__file__).parent
COOKIE = "barnabas-console"
LIVE_PAGES_MAX = 100
FORM_BYTES_MAX = 2 * 1024 * 1024
"""The maximum size of a form. A record that the console produces is at most 1 MiB."""

SIGN_INS_AT_ONCE = 20
SIGN_INS_OF_ADDRESS_AT_ONCE = 5
REFUSED_S = 1.0
"""The time for which a wrong password holds up the next attempts from the same address."""
ENDED = "your session has ended; sign in again"

log = logging.getLogger(__name__)

Page = Callable[["Context"], Awaitable[Response]]


def is_partial(request: Request) -> bool:
    """Return whether a script asks for a part of a page."""
    return bool(request.headers.get("hx-request") == "true")


def is_from_script(request: Request) -> bool:
    """Return whether a script has sent a request: for a part of a page, for the values of a chart, or for records."""
    accepted = request.headers.get("accept", "")
    return is_partial(request) or accepted in ("application/json", "text/event-stream")


class Context:
    """A request of a signed-in user.

    :ivar view: the user's view of the cluster.
    :ivar audits: the user's audits of topics.
    """

    def __init__(self, request: Request, session: Session, console: Console) -> None:
        self.request = request
        self.session = session
        self.view = session.view
        self.audits = session.audits
        self.console = console

    @property
    def is_partial(self) -> bool:
        """True if a script asks for a part of the page."""
        return is_partial(self.request)

    @property
    def has_ended(self) -> bool:
        """True if the session has ended since the request."""
        return self.console.sessions.find(self.session.id) is None

    def query(self, name: str, default: str = "") -> str:
        """Return a parameter of the query."""
        return str(self.request.query_params.get(name, default))

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page."""
        return self.console.render(template, status, self.session, **values)

    def json(self, value: Any) -> Response:
        return JSONResponse(value)

    @property
    def decoding(self) -> RecordDecoding | None:
        """The decoder of records with schemas; None without a registry."""
        return None if self.session.schemas is None else self.session.schemas.decoding

    @property
    def schemas(self) -> Schemas:
        """The schemas of the registry.

        :raises HTTPException: the console has no registry.
        """
        if self.session.schemas is None:
            raise HTTPException(404, "this console has no schema registry; name it with --registry")
        return self.session.schemas

    @property
    def tables(self) -> TableReads:
        """The tables of topics.

        :raises HTTPException: the console has no warehouse.
        """
        if self.console.tables is None:
            raise HTTPException(404, "this console has no warehouse; name it with --warehouse")
        return self.console.tables

    async def form(self, *, changes: bool = True) -> Mapping[str, str]:
        """Return the fields of a form that the user has sent from a page of this session.

        :param changes: True if the form changes the cluster.
        :raises HTTPException: changes are not allowed, or the form is from another session.
        """
        form = await self.console.fields_of(self.request)
        if not hmac.compare_digest(form.get("token", "").encode("utf-8", "replace"), self.session.token.encode()):
            raise HTTPException(403, "this form belongs to an earlier session; reload the page")
        if changes and not self.console.config.allow_changes:
            raise HTTPException(403, "this console is read-only; start it with --allow-changes")
        return form


class LivePages:
    """Counts the open live pages."""

    def __init__(self) -> None:
        self._count = 0

    @property
    def is_full(self) -> bool:
        return self._count >= LIVE_PAGES_MAX

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *_error: object) -> None:
        self._count -= 1


class SignIns:
    """Limits the attempts to sign in that wait for the brokers. A wrong password holds its place for a moment."""

    def __init__(self) -> None:
        self._waiting: list[str] = []

    def admits(self, address: str) -> bool:
        """Return whether another attempt from an address may begin."""
        return len(self._waiting) < SIGN_INS_AT_ONCE and self._waiting.count(address) < SIGN_INS_OF_ADDRESS_AT_ONCE

    @contextlib.contextmanager
    def attempt(self, address: str) -> Iterator[None]:
        """Count an attempt until the block ends."""
        self._waiting.append(address)
        try:
            yield
        finally:
            self._waiting.remove(address)


class Console:
    """The console: its sessions, and its templates."""

    def __init__(self, config: ConsoleConfig, sessions: Sessions) -> None:
        self.config = config
        self.sessions = sessions
        self.tables = None if config.tables is None else TableReads(config.tables)
        self.live_pages = LivePages()
        self._sign_ins = SignIns()
        self._beginning = asyncio.Lock()
        self._of_everybody: Session | None = None
        self._templates = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_visible,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update({**FILTERS, "visible": visible})

    def render(self, template: str, status: int = 200, session: Session | None = None, **values: Any) -> Response:
        """Return a page."""
        text = self._templates.get_template(template).render(
            session=session,
            signs_in=self.config.signs_in,
            allows_changes=self.config.allow_changes,
            has_registry=self.config.registry is not None,
            bootstrap=self.config.bootstrap,
            **values,
        )
        return HTMLResponse(text, status)

    async def session_of(self, request: Request) -> Session | None:
        """Return the session of a request; None if the user has to sign in.

        :raises BarnabasError: no broker can be reached.
        """
        if self.config.signs_in:
            return self.sessions.find(request.cookies.get(COOKIE, ""))
        async with self._beginning:
            if self._of_everybody is None:
                settings = {**self.config.settings, "bootstrap.servers": self.config.bootstrap}
                self._of_everybody = await self.sessions.begin("", settings, self._schemas({}), ends=False)
        return self._of_everybody

    def known_session(self, request: Request) -> Session | None:
        """Return the session of a request without asking a broker; None if there is none."""
        if self.config.signs_in:
            return self.sessions.find(request.cookies.get(COOKIE, ""))
        return self._of_everybody

    def _schemas(self, login: Mapping[str, str]) -> Schemas | None:
        """Return the registry as a user sees it; None without a registry."""
        if self.config.registry is None:
            return None
        return Schemas(self.config.registry, {**self.config.registry_settings, **login}, SYSTEM_CLOCK)

    async def fields_of(self, request: Request) -> dict[str, str]:
        """Return the fields of a form.

        :raises HTTPException: the form is too large.
        """
        length = request.headers.get("content-length", "")
        if not length.isdigit() or int(length) > FORM_BYTES_MAX:
            raise HTTPException(413, f"a form has at most {FORM_BYTES_MAX} bytes")
        async with request.form(max_files=0, max_fields=50, max_part_size=FORM_BYTES_MAX) as form:
            return {name: value for name, value in form.items() if isinstance(value, str)}

    def handler(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        """Return what serves a page to signed-in users."""

        async def handle(request: Request) -> Response:
            session = None
            try:
                session = await self.session_of(request)
                if session is None:
                    return _to_sign_in(request)
                return await page(Context(request, session, self))
            except (BarnabasError, TimeoutError) as error:
                return self._failure(request, session, error)

        return handle

    def _failure(self, request: Request, session: Session | None, error: BarnabasError | TimeoutError) -> Response:
        status, text = status_of(error), text_of(error)
        session = session or self.known_session(request)
        if is_from_script(request):
            return PlainTextResponse(text, status)
        tries_again = status == 502 and request.method == "GET"
        return self.render("error.html", status, session, title="Error", text=text, tries_again=tries_again)

    # -- sign in and out ---------------------------------------------------------------------------------------

    async def sign_in(self, request: Request) -> Response:
        """Show the form, or sign a user in."""
        if not self.config.signs_in:
            return RedirectResponse("/", 303)
        if request.method != "POST":
            return self.render("sign_in.html", error="", user="")
        form = await self.fields_of(request)
        user, password = form.get("user", ""), form.get("password", "")
        address = "" if request.client is None else request.client.host
        if not self._sign_ins.admits(address):
            return self.render("sign_in.html", 503, error="Too many users sign in now. Try again later.", user=user)
        with self._sign_ins.attempt(address):
            return await self._signed_in(user, password)

    async def _signed_in(self, user: str, password: str) -> Response:
        """Return the response to a name and a password."""
        settings = {**self.config.settings_of(user, password), "bootstrap.servers": self.config.bootstrap}
        try:
            schemas = self._schemas({"username": user, "password": password})
            session = await self.sessions.begin(user, settings, schemas)
        except AuthenticationError:
            await asyncio.sleep(REFUSED_S)
            return self.render("sign_in.html", 403, error="The brokers reject this user name or password.", user=user)
        except (BarnabasError, TimeoutError):
            log.warning("cannot sign in a user: no broker answers at %s", self.config.bootstrap)
            return self.render("sign_in.html", 502, error="No broker answers. Try again later.", user=user)
        response = RedirectResponse("/", 303)
        response.set_cookie(
            COOKIE,
            session.id,
            max_age=round(SESSION_S_MAX),
            httponly=True,
            samesite="strict",
            secure=self.config.security.tls is not None,
        )
        return response

    async def sign_out(self, request: Request) -> Response:
        """End the session of a user."""
        session = self.sessions.find(request.cookies.get(COOKIE, ""))
        if session is not None:
            await self.sessions.end(session)
        response = RedirectResponse("/sign-in" if self.config.signs_in else "/", 303)
        response.delete_cookie(COOKIE)
        return response

    async def close(self) -> None:
        """End all sessions."""
        await self.sessions.close()


def status_of(error: BarnabasError | TimeoutError) -> int:
    """Return the status of the response to a request that failed."""
    if isinstance(error, SchemaRegistryError):
        of_registry = error.code // 100 if error.code >= 1_000 else error.code
        return of_registry if of_registry in {403, 404} else 502
    code = error.code if isinstance(error, ApiError) else None
    if code is not None and code.name.endswith("AUTHORIZATION_FAILED"):
        return 403
    if code in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND}:
        return 404
    return 502


def _visible(value: Any) -> Any:
    """Return a text of a page with visible control characters. Markup, such as the values of fields, stays as it is."""
    return visible(value) if type(value) is str else value


def _to_sign_in(request: Request) -> Response:
    """Return the response to a request without a session."""
    if request.headers.get("accept") == "text/event-stream":
        return Response(f"event: ended\ndata: {ENDED}\n\n", media_type="text/event-stream")
    if is_from_script(request):
        return PlainTextResponse(ENDED, 401, {"hx-redirect": "/sign-in"})
    return RedirectResponse("/sign-in", 303)
