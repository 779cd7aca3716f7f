"""The forms of dead letters."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from dynatick.api.models.forms import ClosedForm, OpenForm

MAX_LETTERS = 1000
"""Letters in one answer."""

State = Literal["failed", "open", "redriven", "ended", "gone", "unreadable"]


class DeadLetter(OpenForm):
    """A dead letter, with the state of its task when it was read."""

    taskId: str | None = Field(None, description="None: the message is no dead letter.")
    createdAt: str | None = Field(None, description="When the task was inserted.")
    run: int | None = None
    attempt: int | None = Field(None, description="The last one; 0: the row could not be made a task.")
    action: str | None = None
    error: str | None = None
    failedAt: str | None = None
    state: State = Field(
        description="failed: the task's state still. open: the failure is not recorded, so the task waits or runs. "
        "redriven: the task has begun another run since. ended: it was run once more in the same run, and has ended "
        "otherwise. gone: there is no such task any more, or another has its id. unreadable: no dead letter."
    )
    taskStatus: str | None = Field(None, description="The status of the task that has this id now.")


class DeadLetterList(OpenForm):
    """Dead letters, in no order. The numbers of messages are SQS's estimates."""

    deadLetters: list[DeadLetter]
    complete: bool = Field(description="The queue was read until it was empty. If not, there may be more.")
    messages: int = Field(description="Messages that could be read, before this request.")
    hidden: int = Field(description="Messages that another reader had just received.")


class DeadLetterSelection(ClosedForm):
    """The dead letters to handle."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"dryRun": True}]})

    action: str | None = Field(None, description="Only those of this action.", examples=["webhook"])
    error: str | None = Field(None, description="Only those with this in their error.", examples=["answered 503"])
    dryRun: bool = Field(False, description="Return what would be done, and change nothing.")
    limit: int = Field(MAX_LETTERS, ge=1, le=MAX_LETTERS, description="The maximum number of letters to read.")


class DeadLetterPurge(DeadLetterSelection):
    """The dead letters to delete."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"obsolete": True, "dryRun": True}]})

    obsolete: bool = Field(False, description="Only those whose state is redriven, ended or gone.")


class HandledLetter(DeadLetter):
    """A letter, and what was done about it; of a dry run, what would be."""

    result: Literal["redriven", "dropped", "purged", "kept", "unknown"] = Field(
        description="redriven: its task begins another run, and the letter is deleted. dropped: obsolete, and deleted. "
        "purged: deleted. unknown: the table gave no answer, so that the letter is kept. Repeat the request."
    )
    detail: str | None = Field(None, description="Why it was kept.")


class HandledLetters(OpenForm):
    """One result for each letter, and how many there are of each."""

    results: list[HandledLetter]
    counts: dict[str, int]
    more: bool = Field(description="Whether letters may be left: repeat the request.")
