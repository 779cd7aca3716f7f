"""The action ``log``: one line that says the task came due. It shows that everything works."""

from __future__ import annotations

import logging

from dynatick.domain.instants import format_instant
from dynatick.domain.task import Task
from dynatick.engine.ports import ActionContext

_logger = logging.getLogger("dynatick.actions")


class Log:
    """Logs which task ran. The payload may be anything and is not logged: it is the user's."""

    def run(self, task: Task, context: ActionContext) -> None:
        """Writes one line at level INFO. Raises nothing."""
        _logger.info(
            "task_logged",
            extra={
                "action": "task_logged",
                "task_id": task.task_id,
                "due_at": format_instant(context.due_at),
                "attempt": context.attempt,
            },
        )
