"""`dynatick ui` as a person starts it: the command, in a process of its own, and a browser."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

from playwright.sync_api import Browser, expect
from tests.ui import browser
from tests.ui.serving import Served

from dynatick_stack.counting.counts import Engine


def test_the_command_says_where_its_pages_are_and_ctrl_c_ends_it(
    engine: Engine, small: Served, chromium: Browser
) -> None:
    options = ("--table", small.table, "--endpoint-url", engine.url, "--port", "0", "--no-open")
    program = [sys.executable, "-m", "dynatick.cli", "ui", *options]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(program, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert found is not None
        person = browser.open_tab(chromium, found[0])
        person.open()
        expect(person.by("nav-now")).to_have_attribute("aria-current", "page")
        assert person.problems() == []
        person.context.close()
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        assert "Traceback" not in rest
        assert process.returncode in (0, 130)
