"""An execution environment of the processor function, as Lambda keeps it.

It runs the function's own entry point, ``functions/processor/app.py``, and so ends when that says so. After an
invocation that returned or raised it is frozen with all its threads, and thaws when it is given another one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.model.faulty_store import Actor
from tests.mutation import ROOT

from dynatick import observability, wiring
from dynatick.engine.processor import Invoked, Processor

PATH = ROOT / "functions/processor/app.py"
APP = compile(PATH.read_text(encoding="utf-8"), str(PATH), "exec")


class Environment:
    """``log``: what is done instead of logs and metrics; ``end_process``: instead of ending this process. ``number``:
    another one for each."""

    def __init__(
        self,
        processor: Processor,
        clock: Callable[[], datetime],
        log: Callable[[Invoked], None],
        end_process: Callable[[], None],
        number: int,
    ) -> None:
        self.number = number
        self.actors: list[Actor] = []
        self.raised = False  # its latest invocation
        self._app: dict[str, Any] = {"__name__": "app"}
        with (
            patch.object(wiring, "load_settings", lambda: None),
            patch.object(wiring, "build_processor", lambda *_: processor),
            patch.object(observability, "create", lambda: (_NoPowertools(), _NoPowertools())),
        ):
            exec(APP, self._app)
        for module, changes in (
            (os, {"_exit": lambda code: end_process()}),
            (logging, {"shutdown": lambda: None}),
            (wiring, {"utc_now": clock}),
            (observability, {"log_invocation": lambda invoked, *_: log(invoked)}),
        ):
            name = module.__name__.rpartition(".")[2]
            assert self._app[name] is module
            self._app[name] = SimpleNamespace(**{**vars(module), **changes})

    def invoke(self, actor: Actor, event: Mapping[str, object], left: Callable[[], float]) -> None:
        """Runs the handler in the calling thread, which belongs to ``actor``; ``left``: the seconds until the end."""
        self.actors.append(actor)
        actor.environment = self.actors
        for other in self.actors:
            other.thaw()
        context = SimpleNamespace(get_remaining_time_in_millis=lambda: round(left() * 1000))
        self.raised = True
        try:
            self._app["handler"](event, context)
            self.raised = False
        finally:
            self._pause()

    def _pause(self) -> None:
        """Does what Lambda does when the handler has returned, or raised."""
        self.actors[:] = [actor for actor in self.actors if len(actor.threads) > (actor is self.actors[-1])]
        for actor in self.actors:
            actor.freeze()

    def end(self) -> None:
        for actor in self.actors:
            actor.kill()


class _NoPowertools:
    """Logger and metrics of an environment: their decorators add nothing, and what is logged goes nowhere."""

    def inject_lambda_context(self, **_: object) -> Callable[[Any], Any]:
        return lambda handler: handler

    log_metrics = inject_lambda_context

    def error(self, *_: object, **__: object) -> None:
        pass
