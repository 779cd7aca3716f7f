"""What a team does in its first month, in an empty folder with nothing but the wheel (`make newcomer MONTH=1`).

Stages with variables and secrets, files that are no code, a payload that changes while tasks wait, one customer's
tasks, a cancellation that is taken back, a schedule that changes, a table that is silent. Each step is what a person
types, and what that must print.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.e2e.programs import Running
from tests.newcomer import READY, WAIT_SECONDS, build_wheel, environment_without_checkout, run

from dynatick_stack.scratch import run_in_scratch

SETTINGS = """\
[stack]
name = "reminders"
region = "eu-central-1"

[handlers]
module = "handlers"
environment = { SENDER = "noreply@example.com", SMTP_HOST = "mail.staging.example.com" }
secrets = { SMTP_PASSWORD = "ssm:/reminders/staging/smtp" }

[stages.prod.handlers]
environment = { SMTP_HOST = "mail.example.com" }
secrets = { SMTP_PASSWORD = "ssm:/reminders/prod/smtp" }

[stages.prod.parameters]
TickMinutes = 5
"""

HANDLERS = """\
import os
from dataclasses import dataclass

from dynatick import secret, task


@dataclass
class Mail:
    to: str
    text: str


@task("send-reminder", subject=lambda mail: f"customer:{mail.to}")
def send_reminder(mail: Mail) -> None:
    assert secret("SMTP_PASSWORD") == "of this machine"
    if "@" not in mail.to:
        raise ValueError(f"{mail.to} is no address")
    print(f"To {mail.to} by {os.environ['SMTP_HOST']}: {mail.text}")
"""

CHANGED = HANDLERS.replace(
    """\
class Mail:
    to: str
    text: str


@task("send-reminder", subject=""",
    """\
class MailOfNovember:
    to: str
    text: str


@dataclass
class Mail:
    to: str
    body: str


def from_november(mail: MailOfNovember) -> Mail:
    return Mail(mail.to, mail.text)


@task("send-reminder", upgrade=from_november, subject=""",
).replace("mail.text}", "mail.body}")

SCHEDULE = """\
import sys

from dynatick.errors import ScheduleDiffers
from handlers import Mail, send_reminder

mail = Mail("team@example.com", "Stand-up")
weekly = {"schedule_id": "stand-up", "timezone": "Europe/Berlin"}
send_reminder.every("cron(0 9 ? * MON *)", mail, **weekly)
try:
    send_reminder.every("cron(30 9 ? * MON *)", mail, **weekly)
except ScheduleDiffers as error:
    print(error)
print(send_reminder.every("cron(30 9 ? * MON *)", mail, **weekly, if_exists="replace").expression)
"""

SILENT = """\
import os
import socket
import time

from dynatick import StoreError, TaskClient

listening = socket.create_server(("127.0.0.1", 0))  # connects, and answers nobody
os.environ.pop("DYNATICK_TIMEOUT_SECONDS", None)
began = time.monotonic()
try:
    client = TaskClient.connect(endpoint_url=f"http://127.0.0.1:{listening.getsockname()[1]}")
    client.insert("never", delay_seconds=60)
except StoreError as error:
    print(f"given up after {time.monotonic() - began:.1f} s: {error}")
"""


def walk(folder: Path, say: Callable[[str], object]) -> None:
    """Raises CalledProcessError for a command that fails, and AssertionError for one that prints something else."""
    project = folder / "reminders"
    project.mkdir(parents=True)
    shutil.copy(build_wheel(folder / "dist"), project)
    environ = {**environment_without_checkout(folder), "SMTP_PASSWORD": "of this machine"}

    def step(title: str, command: str, *shows: str, hides: str = "of this machine") -> None:
        say(f"# {title}")
        said = run(f'[ -d .dynatick ] && eval "$(.venv/bin/dynatick local env)"\n{command}', project, environ, say)
        for pattern in shows:
            assert re.search(pattern, said, re.MULTILINE), f"{title}: {pattern!r} is not in what was printed"
        assert hides not in said, f"{title}: {hides!r} was printed"

    for command in ("python3 -m venv .venv", '.venv/bin/pip install --quiet "$(ls dynatick-*.whl)[cli]"'):
        run(command, project, environ, say)
    (project / "dynatick.toml").write_text(SETTINGS, encoding="utf-8")
    (project / "handlers.py").write_text(HANDLERS, encoding="utf-8")
    (project / "customers.csv").write_text("name,address\nAda,ada@example.com\n", encoding="utf-8")
    dev = Running(
        "bash", "-c", "exec .venv/bin/dynatick dev", cwd=project, environ=environ, say=lambda line: say(f"  {line}")
    )
    try:
        dev.shows(READY, within=WAIT_SECONDS)
        for title, command, shows in _first_half():
            step(title, command, *shows)
        (project / "handlers.py").write_text(CHANGED, encoding="utf-8")
        dev.shows(r"handlers\.py changed: deployed", within=WAIT_SECONDS)
        for title, command, shows in _second_half():
            step(title, command, *shows)
    finally:
        dev.end(signal.SIGINT)


Steps = list[tuple[str, str, tuple[str, ...]]]


def _first_half() -> Steps:
    in_november = '{"to": "ada@example.com", "text": "Your contract ends"}'
    wrong, once = '{"to": "nobody", "text": "Hi"}', '{"maximumRetryAttempts": 0}'
    add = ".venv/bin/dynatick task add --action send-reminder"
    return [
        ("What holds for a stage, and where a password comes from",
         ".venv/bin/dynatick deploy --stage prod --dry-run </dev/null",
         (r"SMTP_HOST +mail\.example\.com +\[stages\.prod\.handlers\]", r"SENDER +noreply@example\.com +\[handlers\]",
          r"SMTP_PASSWORD +ssm:/reminders/prod/smtp", r"TickMinutes +5 ")),
        ("Files that are no code are named before they go anywhere", ".venv/bin/dynatick diff --stage prod </dev/null",
         (r"customers\.csv",)),
        ("Tasks of one customer, the one due in 40 days",
         f"{add} contract-ada --delay 40d --subject customer:ada@example.com --payload '{in_november}'\n"
         f"{add} hello-ada --delay 30d --subject customer:ada@example.com --payload '{in_november}'",
         (r"customer:ada@example\.com",)),
        ("A payload that is wrong, found when it runs",
         f"{add} wrong --payload '{wrong}' --retry-policy '{once}'\n"
         ".venv/bin/dynatick task wait wrong || [ $? = 8 ]",
         (r"nobody is no address",)),
        ("It is redriven with another one",
         ".venv/bin/dynatick task redrive wrong --set to=nobody@example.com --dry-run\n"
         ".venv/bin/dynatick task redrive wrong --set to=nobody@example.com\n.venv/bin/dynatick task wait wrong",
         (r"^completed wrong",)),
    ]  # fmt: skip


def _second_half() -> Steps:
    return [
        ("The payload's type has changed: what waits still fits",
         ".venv/bin/dynatick doctor\n"
         ".venv/bin/dynatick task run contract-ada\n.venv/bin/dynatick task wait contract-ada",
         (r"^completed contract-ada",)),
        ("What waits for one customer", ".venv/bin/dynatick task list --subject customer:ada@example.com",
         (r"contract-ada .* completed", r"hello-ada .* scheduled")),
        ("A cancellation is taken back, to the time that it had",
         ".venv/bin/dynatick task cancel hello-ada\n.venv/bin/dynatick task restore hello-ada",
         (r"status +cancelled", r"status +scheduled", r"in 30 days")),
        ("The customer leaves",
         ".venv/bin/dynatick task export --subject customer:ada@example.com --state\n"
         ".venv/bin/dynatick task delete --subject customer:ada@example.com --yes\n"
         ".venv/bin/dynatick task list --subject customer:ada@example.com",
         (r'"taskId": ?"hello-ada"', r"2 deleted", r"There are none")),
        ("A schedule that has changed", f".venv/bin/python - <<'PYTHON'\n{SCHEDULE}PYTHON",
         (r"its expression is 'cron\(0 9 \? \* MON \*\)', not 'cron\(30 9", r"^cron\(30 9 \? \* MON \*\)$")),
        ("A table that is silent", f".venv/bin/python - <<'PYTHON'\n{SILENT}PYTHON", (r"^given up after \d\.\d s: ",)),
    ]  # fmt: skip


def main() -> int:
    return run_in_scratch("month", _walk)


def _walk(folder: Path) -> int:
    def say(text: str) -> None:
        print(text, flush=True)

    try:
        walk(folder, say)
    except (subprocess.CalledProcessError, AssertionError) as error:
        say(f"This failed: {error}")
        return 1
    say("A month of a new user, from an empty folder: all as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
