"""`dynatick ui` as a person starts it: the command, in a process of its own, and a browser."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, expect
from tests.ui import browser
from tests.ui.serving import Served

from dynatick_stack.counting.counts import Engine


@contextmanager
def command(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the first line that it says."""
    program = [sys.executable, "-m", "dynatick.cli", "ui", *arguments]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(program, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.kill()


def options(engine: Engine, pages: Served) -> tuple[str, ...]:
    return ("--table", pages.table, "--endpoint-url", engine.url, "--port", "0", "--no-open")


def url_in(line: str) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert found is not None, line
    return found[0]


def test_the_command_says_where_its_pages_are_and_ctrl_c_ends_it(
    engine: Engine, small: Served, chromium: Browser
) -> None:
    with command(*options(engine, small)) as (process, line):
        person = browser.open_tab(chromium, url_in(line))
        person.open()
        expect(person.by("nav-now")).to_have_attribute("aria-current", "page")
        assert person.problems() == []
        person.context.close()
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=20)
        assert "Traceback" not in rest
        assert process.returncode in (0, 130)


def test_a_server_for_reading_only_says_so(engine: Engine, small: Served) -> None:
    with command(*options(engine, small), "--read-only") as (_, line):
        assert "read-only" in line
        connection = http.client.HTTPConnection(url_in(line).removeprefix("http://"), timeout=10)
        connection.request("POST", "/pause", "token=x", {"Content-Type": "application/x-www-form-urlencoded"})
        assert connection.getresponse().status == 403


def test_a_port_that_is_taken_is_said_in_a_sentence(engine: Engine, small: Served) -> None:
    port = small.url.rpartition(":")[2]
    with command("--table", small.table, "--endpoint-url", engine.url, "--port", port, "--no-open") as (process, line):
        rest, _ = process.communicate(timeout=20)
        assert process.returncode not in (0, None)
        assert port in line + rest
        assert "--port" in line + rest
        assert "Traceback" not in rest


@pytest.mark.parametrize("address", ["127.0.0.2", "::1"])
def test_only_one_address_of_this_machine_has_the_pages(engine: Engine, small: Served, address: str) -> None:
    with command(*options(engine, small)) as (_, line):
        port = int(url_in(line).rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        with pytest.raises(OSError):
            socket.create_connection((address, port), timeout=5)
