"""`dynatick dev` as a person runs it: a task runs, a save is deployed, a mistake is not, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.e2e.programs import DYNATICK, Running, environment, run

from dynatick.client import TaskClient
from dynatick_stack import local, processes
from dynatick_stack.init import write_project

pytestmark = pytest.mark.long

STARTS = (
    r"^reminders on http://127\.0\.0\.1:\d+ · table reminders-\S+ · tick every minute, to the second "
    r"· dashboard (http://127\.0\.0\.1:\d+)$"
)
FAILS = (
    r"^[\d:]{8}  failed     send-reminder    second           attempt 1 of 4, again at [\d:]{8}   ValueError: no such"
)
MISTAKE = (
    r"^[\d:]{8}  handlers\.py changed: handlers\.py:\d+  SyntaxError: invalid syntax\n +The version before goes on$"
)
TOKEN = "this-is-a-secret-of-the-shop"
DELIVER = """

def deliver(mail: Mail) -> None:
    if mail.to == "nobody":
        raise ValueError("no such mailbox")
"""
DIGEST = 'send_reminder.declare_schedule("rate(1 day)", Mail("team", "Digest"), schedule_id="digest")\n'


class Dev(Running):
    """A running `dynatick dev`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(*DYNATICK, "dev", cwd=folder, environ=environment(PYTHONUNBUFFERED="1", TOKEN=TOKEN))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another command beside it."""
        return run(*DYNATICK, *arguments, cwd=self.folder)

    def add(self, task_id: str, to: str) -> None:
        payload = f'{{"to": "{to}", "text": "Hello"}}'
        done = self.run("task", "add", task_id, "--local", "--action", "send-reminder", "--payload", payload)
        assert done.returncode == 0, done.stderr

    def client(self) -> TaskClient:
        return local.attach(state_dir=self.folder / ".dynatick" / "local").task_client()


def contents(folder: Path) -> Mapping[Path, bytes]:
    """Of all files in it, but for those that are deleted meanwhile: the emulator ends workers, with their files."""
    found = {}
    for path in (Path(parent, name) for parent, _, names in os.walk(folder) for name in names):
        with contextlib.suppress(FileNotFoundError):
            found[path] = path.read_bytes()
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = (tmp_path / "reminders").resolve()
    write_project(made)
    with (made / "dynatick.toml").open("a") as file:  # below [handlers]
        file.write('secrets = { TOKEN = "secretsmanager:shop#token" }\n')
    return made


@pytest.fixture
def dev(folder: Path) -> Iterator[Dev]:
    running = Dev(folder)
    yield running
    running.end()
    assert processes.running(folder / ".dynatick" / "local") == {}


def test_tasks_run_saves_are_deployed_and_mistakes_are_not(
    dev: Dev, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    dashboard = dev.shows(STARTS, within=180)[1]
    dev.shows(r"^Handlers: send-reminder\. Ready in .* is not kept$")
    dev.add("first", "ada@example.com")
    ran = dev.shows(r"^[\d:]{8}  completed  send-reminder    first            [\d.]+ m?s after due, [\d.]+ m?s$")
    assert dev.shows(r"^[\d:]{8}  inserted   send-reminder    first            due now$").end() < ran.start()
    dev.shows(r"^[\d:]{8}  output     To ada@example\.com: Hello$")

    with urllib.request.urlopen(f"{dashboard}/tasks/first", timeout=60) as page:
        assert "completed" in page.read().decode()

    client = dev.client()
    client.store.create({"taskId": "raw", "delaySeconds": 3000})
    dev.shows(r"^[\d:]{8}  inserted   log              raw              due at [-\d: ]{8,}$")
    client.insert_many({"taskId": f"in-a-batch-{n}", "delaySeconds": 3000} for n in range(7))
    dev.shows(r"^[\d:]{8}  inserted   7 tasks$")

    file = folder / "handlers.py"
    good = file.read_text()
    failing = good.replace("    print(", "    deliver(mail)\n    print(") + DELIVER + DIGEST
    saved = time.monotonic()
    file.write_text(failing)
    deployed = dev.shows(r"^[\d:]{8}  handlers\.py changed: deployed in (\d+\.\d) s$")
    record_property("figure", f"deployed {time.monotonic() - saved:.1f} s after the save, {deployed[1]} s by itself")
    dev.shows(r"^[\d:]{8}  schedule   created          digest$")
    dev.add("second", "nobody")
    dev.shows(FAILS)
    number = failing.splitlines().index('        raise ValueError("no such mailbox")') + 1
    dev.shows(rf'^ +handlers\.py:{number} in deliver\n +raise ValueError\("no such mailbox"\)$')

    file.write_text(good + "\ndef broken(:\n")
    dev.shows(MISTAKE)
    file.write_text(good.replace('"send-reminder"', '"webhook"'))  # which the processor finds out
    dev.shows(r"^[\d:]{8}  handlers\.py changed: .*'webhook' is there twice.*\n +The version before goes on$")
    dev.add("third", "bob@example.com")
    dev.shows(r"^[\d:]{8}  completed  send-reminder    third ")

    file.write_text(good.replace("{mail.text}", "{len(secret('TOKEN'))}").replace("import task", "import secret, task"))
    dev.shows(r"^[\d:]{8}  completed  send-reminder    third (?:.*\n)+?[\d:]{8}  handlers\.py changed: deployed in ")
    dev.shows(r"^[\d:]{8}  schedule   removed          digest           it is no longer declared$")
    dev.add("fourth", "eve@example.com")
    dev.shows(rf"^[\d:]{{8}}  output     To eve@example\.com: {len(TOKEN)}$")
    written = contents(folder / ".dynatick")
    assert written
    assert not [path for path, content in written.items() if TOKEN.encode() in content]
    assert TOKEN not in dev.output

    again = dev.run("dev")
    assert (again.returncode, "runs in" in again.stderr) == (5, True)
    # An occurrence is of a tick. What ran before may have been run by wake-ups, or cut off by a deployment.
    client.schedules.insert("each-minute", "rate(1 minute)", action="log")
    dev.shows(r"^[\d:]{8}  tick       \d{4}-\d\d-\d\d#\d\d:\d\d ", within=240)


@pytest.mark.parametrize(
    ("until", "number"),
    [
        ("Deploying ", signal.SIGINT),
        ("Handlers: ", signal.SIGTERM),
        pytest.param("Deploying ", signal.SIGTERM, marks=pytest.mark.night),
        pytest.param("Handlers: ", signal.SIGINT, marks=pytest.mark.night),
    ],
)
def test_it_ends_at_once_and_leaves_nothing_running(dev: Dev, folder: Path, number: signal.Signals, until: str) -> None:
    dev.shows(f"^{until}", within=180)
    assert dev.end(number) == 0
    assert "Stopped; nothing is left running" in dev.output
    assert processes.running(folder / ".dynatick" / "local") == {}
    assert not (folder / ".dynatick" / "local").exists()
    left = {path.name for path in folder.iterdir()}
    assert left == {".dynatick", "dynatick.toml", "handlers.py", "test_handlers.py"}
