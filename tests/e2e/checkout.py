"""A copy of the checkout with handlers of a test's own: template.yaml, layer and scheduler are the real ones."""

from __future__ import annotations

import shutil
from pathlib import Path

from dynatick_stack.template import ROOT

MODULE = "handlers_of_the_tests"
HANDLERS = """\
import os
import time
from urllib.request import Request, urlopen

from dynatick import HandlerContext, handler


@handler("die")
def die(payload: dict[str, object]) -> None:
    os._exit(3)


@handler("hang")
def hang(payload: dict[str, object]) -> None:
    time.sleep(600)


@handler("nap")
def nap(payload: dict[str, float]) -> None:
    time.sleep(float(payload["seconds"]))


@handler("late")
def late(payload: dict[str, object], context: HandlerContext) -> None:
    # Its first attempt outlasts the function, and says so should it ever come to its end.
    if context.attempt == 1:
        time.sleep(float(payload["seconds"]))
    headers = {"X-Dynatick-Task-Id": context.task_id, "X-Dynatick-Attempt": str(context.attempt)}
    urlopen(Request(str(payload["url"]), b"{}", {"Idempotency-Key": context.idempotency_key, **headers}))
"""


def with_handlers(root: Path) -> Path:
    """Deploy it with the parameter HandlersModule set to ``MODULE``."""
    root.mkdir()
    for name in ("template.yaml", "shared", "requirements"):
        (root / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "functions", root / "functions", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "functions" / "processor" / f"{MODULE}.py").write_text(HANDLERS, encoding="utf-8")
    return root
