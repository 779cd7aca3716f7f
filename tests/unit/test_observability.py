"""What the functions log, in the form in which it comes out."""

from __future__ import annotations

import json
import subprocess
import sys

# In a process of its own: loggers are the process's, and so is their configuration.
PROGRAM = """
import logging
from dynatick import observability

logger, _ = observability.create()
logger.info("pass ended", extra={"action": "pass_ended"})
# As the actions do, and as handlers do whose module is imported after this.
logging.getLogger("dynatick.actions").info("task_logged", extra={"action": "task_logged", "task_id": "a"})
logging.getLogger("dynatick.handlers").warning("late", extra={"action": "reminder_due", "task_id": "b"})
logging.getLogger("dynatick.handlers").debug("not at this level")
logging.getLogger("somebody.else").info("not ours")
"""


def test_actions_and_handlers_log_in_the_same_form() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"POWERTOOLS_SERVICE_NAME": "dynatick-processor", "POWERTOOLS_LOG_LEVEL": "INFO"},
        capture_output=True,
        text=True,
        check=True,
    )
    records = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [(one["level"], one["action"], one.get("task_id")) for one in records] == [
        ("INFO", "pass_ended", None),
        ("INFO", "task_logged", "a"),
        ("WARNING", "reminder_due", "b"),
    ]
    assert {one["service"] for one in records} == {"dynatick-processor"}
    assert ran.stderr == ""


NOTHING_IMPORTED = """
import sys
import types
from dynatick import observability
from dynatick.bulk.dropped import Dropped, Order
from dynatick.bulk.importing import Tally

logger, metrics = observability.create()
order = Order(bucket="b", key="imports/a.ndjson", etag="e", size=0, sequencer="1")

@metrics.log_metrics(raise_on_empty_metrics=False)
def handler(event, context):
    observability.tell_dropped(Dropped(order=order, tally=Tally(), left=event), logger, metrics)

for left in (None, "a folder"):
    handler(left, types.SimpleNamespace(function_name="importer"))
"""


def test_a_file_with_nothing_in_it_is_no_reason_for_a_warning() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", NOTHING_IMPORTED],
        env={"POWERTOOLS_SERVICE_NAME": "dynatick-importer", "POWERTOOLS_METRICS_NAMESPACE": "Dynatick"},
        capture_output=True,
        text=True,
        check=True,
    )
    records = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [one["action"] for one in records if "action" in one] == ["import_ended", "import_left"]
    assert [one["Imported"] for one in records if "_aws" in one] == [[0.0], [0.0]]
    assert ran.stderr == ""
