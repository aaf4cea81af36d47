"""The stages that every call passes, in one order, whatever way its request came.

A call enters each stage before its handler has it, and leaves each stage with its responses. A stage that has nothing
to do on one of these ways costs nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.broker.pipeline.call import Call, RunCall
from barnabas.broker.pipeline.reply import Reply


class Stage:
    """A stage of the chain. Subclasses override what they need."""

    def enter(self, call: Call, request: Any) -> Reply | None:
        """Look at a call before its handler has it.

        :param request: the decoded request, the run of them, or what a template has recognised.
        :returns: the reply that ends the call here; None to go on.
        :raises BarnabasError: the connection must end.
        """
        del call, request
        return None

    def leave(self, call: Call, response: Any) -> None:
        """Look at a response that was encoded.

        :param response: None for a request that wants no answer, bytes for a frame that was made from a template.
        """

    def leave_run(self, call: RunCall, responses: Sequence[Any]) -> None:
        """Look at the responses to some requests of a run."""
        for response in responses:
            self.leave(call, response)

    def fail(self, call: Call, error: BaseException) -> None:
        """Look at what ended a call without a response, and with it the connection."""


class Chain:
    """The stages in their order, around the handlers.

    :param stages: in the order in which calls enter them.
    """

    __slots__ = ("_entering", "_failing", "_leaving", "_leaving_runs", "leave")

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._entering = [each.enter for each in stages if type(each).enter is not Stage.enter]
        self._leaving = [each.leave for each in stages if type(each).leave is not Stage.leave]
        self.leave: Callable[[Call, Any], None] = self._leaving[0] if len(self._leaving) == 1 else self._leave_all
        """Lets a response pass the stages on its way out. One stage alone is called directly."""
        self._leaving_runs = [each.leave_run for each in stages if type(each).leave is not Stage.leave]
        self._failing = [each.fail for each in stages if type(each).fail is not Stage.fail]

    def enter(self, call: Call, request: Any) -> Reply | None:
        """Return the reply of the stage that ends a call; None if none does.

        :raises BarnabasError: the connection must end.
        """
        for enter in self._entering:
            if (reply := enter(call, request)) is not None:
                return reply
        return None

    def carry_out(self, call: Call, request: Any) -> Reply:
        """Let a call pass the stages and its handler.

        :raises BarnabasError: it failed, and nothing but the end of the connection can say so.
        """
        try:
            if self._entering and (reply := self.enter(call, request)) is not None:
                return reply
            handled: Reply = call.served.handle(request, call)
        except BaseException as error:
            self.fail(call, error)
            raise
        return handled

    def _leave_all(self, call: Call, response: Any) -> None:
        for leave in self._leaving:
            leave(call, response)

    def leave_run(self, call: RunCall, responses: Sequence[Any]) -> None:
        """Let the responses to some requests of a run pass the stages on their way out."""
        for leave in self._leaving_runs:
            leave(call, responses)

    def fail(self, call: Call, error: BaseException) -> None:
        """Let the stages know of a call that ended without a response."""
        for fail in self._failing:
            fail(call, error)
