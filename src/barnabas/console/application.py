"""The routes of the console."""

from __future__ import annotations

import logging

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from barnabas.console.context import FOLDER, Console, is_from_script
from barnabas.console.pages import (
    completeness,
    group,
    groups,
    overview,
    records,
    schemas,
    security,
    share_group,
    table,
    topic,
    topics,
    transactions,
)

NO_PAGE = "There is no such page."
DEFECT = "The console has a defect; see its log."

log = logging.getLogger(__name__)


def new_application(console: Console) -> Starlette:
    """Return the application with all routes."""

    def on_refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if is_from_script(request):
            return PlainTextResponse(str(error.detail), error.status_code)
        text = NO_PAGE if error.detail == "Not Found" else str(error.detail)
        session = console.known_session(request)
        return console.render("error.html", error.status_code, session, title="Error", text=text, tries_again=False)

    def on_unexpected(request: Request, error: Exception) -> Response:
        log.error("a page failed: %r; the user gets an error page", error, exc_info=error)
        session = console.known_session(request)
        return console.render("error.html", 500, session, title="Error", text=DEFECT, tries_again=False)

    return Starlette(
        routes=[
            Route("/", console.handler(overview.overview)),
            Route("/overview/figures", console.handler(overview.figures)),
            Route("/overview/elections.json", console.handler(overview.elections)),
            Route("/topics", console.handler(topics.topics)),
            Route("/topics/tree", console.handler(topics.tree)),
            Route("/topic", console.handler(topic.topic)),
            Route("/topic/rate.json", console.handler(topic.rate)),
            Route("/records", console.handler(records.records)),
            Route("/records/live", console.handler(records.live)),
            Route("/record", console.handler(records.record)),
            Route("/record/value", console.handler(records.value)),
            Route("/produce", console.handler(records.produce), methods=["GET", "POST"]),
            Route("/groups", console.handler(groups.groups)),
            Route("/group", console.handler(group.group)),
            Route("/group/lag.json", console.handler(group.lag)),
            Route("/group/reset", console.handler(group.reset), methods=["GET", "POST"]),
            Route("/share-group", console.handler(share_group.share_group)),
            Route("/transactions", console.handler(transactions.transactions)),
            Route("/transaction", console.handler(transactions.transaction)),
            Route("/producers", console.handler(transactions.producers)),
            Route("/completeness", console.handler(completeness.completeness)),
            Route("/completeness/strip", console.handler(completeness.strip)),
            Route("/completeness/topic", console.handler(completeness.topic)),
            Route("/completeness/neighbours", console.handler(completeness.neighbours)),
            Route("/table", console.handler(table.snapshots)),
            Route("/table/files", console.handler(table.files)),
            Route("/schemas", console.handler(schemas.schemas)),
            Route("/schema", console.handler(schemas.subject)),
            Route("/schema/check", console.handler(schemas.check), methods=["POST"]),
            Route("/security", console.handler(security.security)),
            Route("/sign-in", console.sign_in, methods=["GET", "POST"]),
            Route("/sign-out", console.sign_out, methods=["POST"]),
            Mount("/static", StaticFiles(directory=FOLDER / "static")),
        ],
        exception_handlers={HTTPException: on_refused, 500: on_unexpected},
    )
