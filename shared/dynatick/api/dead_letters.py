"""Dead letters over HTTP: list them, redrive their tasks, delete them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Body, Query

from dynatick.api.limits import Timer, listed
from dynatick.api.models import forms
from dynatick.api.problems import Problem
from dynatick.api.routes import Routes, answer, route
from dynatick.client import DeadLetterPage, DeadLetters, HandledLetter, HandledLetters, LetterResult
from dynatick.client.bulk_change import going_on
from dynatick.domain.instants import optional_text
from dynatick.domain.view import View

_HIDES = "While it reads, the messages are hidden from other readers."
_NOT_KNOWN = ("no-dead-letter-queue",)

Limit = Annotated[int, Query(alias="limit", ge=1, le=forms.MAX_LETTERS, description="The maximum number, up to 1,000.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class HandledList(View):
    """One result for each letter, and how many there are of each."""

    FORM = "HandledLetters"

    results: Annotated[
        Sequence[HandledLetter],
        "Up to limit: those that are kept as far as the others leave room. In a very long answer fewer.",
    ]
    counts: Annotated[Mapping[str, int], "Of all, also of those without a result here."]
    more: Annotated[
        bool,
        "Whether to repeat the request, with this began if there is one: letters may be left, and this one has "
        "deleted or redriven some.",
    ]
    complete: Annotated[bool, "The queue was read until it was empty. If not, there may be more."]
    began: Annotated[str | None, "Of a redrive: when the first of these requests came."] = None


class DeadLetterRoutes(Routes):
    """The operations on dead letters."""

    tag = "Dead letter"

    @route(
        "GET /v1/dead-letters",
        "listDeadLetters",
        "List the messages of tasks that failed for good",
        description=f"Each with the state of its task now. A sample, unless `complete` is true: SQS shows what "
        f"it has in no order. {_HIDES}",
        answers={200: ("Dead letters", DeadLetterPage)},
        problems=("invalid-input", *_NOT_KNOWN),
    )
    def list(self, limit: Limit = 100) -> Response[str]:
        timer = Timer(self._seconds)
        return answer(self._letters().list(limit=limit, stop=lambda: timer.is_up))

    @route(
        "POST /v1/dead-letters/redrive",
        "redriveDeadLetters",
        "Redrive the tasks whose failure is current, and delete their dead letters",
        description="Obsolete letters are deleted, too. Stops at `limit`, or after some seconds: repeat it as "
        f"long as `more` is true, with the `began` of the answer: tasks that failed since then are left out. {_HIDES}",
        answers={200: ("One result for each letter", HandledList)},
        problems=_NOT_KNOWN,
    )
    def redrive(self, body: Annotated[forms.DeadLetterRedrive, Body()]) -> Response[str]:
        letters = self._letters()
        _, began = going_on(self._client, body.began)
        return self._handled(partial(letters.redrive, began=began), body, began)

    @route(
        "POST /v1/dead-letters/purge",
        "purgeDeadLetters",
        "Delete dead letters",
        description="All, or the obsolete ones. Their tasks stay as they are. Stops at `limit`, or after some "
        f"seconds: repeat it as long as `more` is true. {_HIDES}",
        answers={200: ("One result for each letter", HandledList)},
        problems=_NOT_KNOWN,
    )
    def purge(self, body: Annotated[forms.DeadLetterPurge, Body()]) -> Response[str]:
        return self._handled(partial(self._letters().purge, obsolete=body.obsolete), body)

    def _handled(
        self, handle: Callable[..., HandledLetters], body: forms.DeadLetterSelection, began: datetime | None = None
    ) -> Response[str]:
        timer = Timer(self._seconds)
        handled = handle(
            action=body.action, error=body.error, dry_run=body.dryRun, limit=body.limit, stop=lambda: timer.is_up
        )
        results = list(handled)  # before handled.complete is read
        more = not handled.complete and any(map(_is_done, results))  # else it would read the same for ever
        return answer(
            HandledList(
                results=listed(results, body.limit, is_done=_is_done),
                counts=Counter(str(one.result) for one in results),
                more=more,
                complete=handled.complete,
                began=optional_text(began),
            )
        )

    def _letters(self) -> DeadLetters:
        if self._client.dead_letter_queue is None:
            detail = "the function's DYNATICK_DEAD_LETTER_QUEUE_URL is not set; the template sets it"
            raise Problem(code="no-dead-letter-queue", detail=detail)
        return self._client.dead_letters


def _is_done(letter: HandledLetter) -> bool:
    return letter.result is not LetterResult.KEPT
