"""The action ``log``: writes one line when the task runs, to try out an installation."""

from __future__ import annotations

import logging

from dynatick.domain.instants import format_instant
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext

_logger = logging.getLogger("dynatick.actions")


class Log:
    """Logs which task ran. Accepts any payload and does not log it."""

    def run(self, task: Task, context: ActionContext) -> None:
        """Logs one line at level INFO."""
        _logger.info(
            "task_logged",
            extra={
                "action": "task_logged",
                "task_id": task.task_id,
                "due_at": format_instant(context.due_at),
                "attempt": context.attempt,
            },
        )
