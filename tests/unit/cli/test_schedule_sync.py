"""``dynatick schedule sync``: what a project declares, done or only shown, with exit codes for pipelines."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.builders import InProcess
from tests.e2e.documents import blocks
from tests.unit.cli.conftest import Shell, documented
from tests.unit.stack.test_dev import LIBRARIES

from dynatick import TaskClient
from dynatick.cli import schedule_sync
from dynatick.cli.schedule_sync import Declared
from dynatick.cli.session import Session
from dynatick.testing import VirtualInstallation

NIGHTLY = {"taskId": "nightly", "scheduleExpression": "cron(0 6 * * ? *)", "action": "log"}


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """What the project of this folder declares, in each of its stages."""
    rows: list[dict[str, object]] = [dict(NIGHTLY)]

    def read(stage: str | None) -> Declared:
        return Declared(owner=f"mine-{stage}" if stage else "mine", region="eu-central-1", schedules=rows)

    monkeypatch.setattr(schedule_sync, "_plugin", lambda: read)
    return rows


def test_a_dry_run_shows_drift_and_its_exit_code_says_so(
    shell: Shell, world: InProcess, project: list[dict[str, object]]
) -> None:
    ended = shell("schedule", "sync", "--dry-run", "--exit-code")
    assert (ended.code, ended.lines) == (7, ["SCHEDULE  WHAT    WHY", "nightly   create"])
    assert shell("schedule", "sync", "--dry-run").code == 0
    assert shell("schedule", "sync").lines == ["SCHEDULE  WHAT     WHY", "nightly   created"]
    ended = shell("schedule", "sync", "--dry-run", "--exit-code")
    assert (ended.code, ended.lines[1:]) == (0, ["nightly   unchanged"])
    assert [one["scheduleOwner"] for one in shell("schedule", "list", "-o", "json").json["schedules"]] == ["mine"]
    assert "OWNER" in shell("schedule", "list").lines[0]
    assert "scheduleOwner" in shell("schedule", "get", "nightly").out
    project[0]["overlap"] = "allow"
    assert shell("schedule", "sync", "-o", "json").json == {
        "schedules": [{"taskId": "nightly", "result": "change", "reason": "its overlap is 'skip', not 'allow'"}],
        "owner": "mine",
    }


def test_what_is_no_longer_declared_is_removed_only_if_that_is_asked_for(
    shell: Shell, world: InProcess, project: list[dict[str, object]]
) -> None:
    shell("schedule", "sync")
    project.clear()
    assert shell("schedule", "sync").lines[1:] == ["nightly   kept  it is no longer declared"]
    assert shell("schedule", "sync", "--dry-run", "--exit-code").code == 7
    assert shell("schedule", "sync", "--prune").lines[1:] == ["nightly   removed  it is no longer declared"]
    ended = shell("schedule", "sync", "--prune", "--dry-run", "--exit-code")
    assert (ended.code, ended.out, ended.err) == (0, "", "There are none\n")


def test_an_id_of_another_is_a_conflict_and_the_others_are_done(
    shell: Shell, world: InProcess, project: list[dict[str, object]]
) -> None:
    project.append({**NIGHTLY, "taskId": "theirs"})
    shell("schedule", "add", "theirs", "rate(1 hour)", "--action", "log")
    ended = shell("schedule", "sync")
    assert ended.code == 5
    assert ended.lines[1:] == [
        "nightly   created",
        "theirs    conflict  it was inserted by hand, and no deployment declares it; choose another id, or delete it",
    ]
    assert ended.err == "error: 1 of 2 schedules stays as it is: the id is not that of one of mine\n"
    assert shell("schedule", "get", "theirs", "-o", "json").json["scheduleExpression"] == "rate(1 hour)"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ("mine", None, "eu-central-1")),
        (["--stage", "prod"], ("mine-prod", None, "eu-central-1")),
        (["--region", "us-east-1"], ("mine", None, "us-east-1")),
        (["--table", "tasks"], (None, "tasks", None)),
        (["--stack", "other"], ("other", None, None)),
    ],
)
def test_the_table_is_that_of_the_projects_stack_unless_an_option_names_another(
    shell: Shell,
    world: InProcess,
    project: list[dict[str, object]],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    expected: tuple[str | None, ...],
) -> None:
    asked = []
    client = Session.client

    def note(session: Session) -> object:
        asked.append((session.stack, session.table, session.region))
        return client(session)

    monkeypatch.setattr(Session, "client", note)
    assert shell("schedule", "sync", *arguments).code == 0
    assert asked == [expected]


def test_the_command_needs_its_plug_in(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_sync, "entry_points", lambda group: [])
    ended = shell("schedule", "sync", "--table", "tasks")
    assert ended.code == 1
    assert ended.err == "error: schedule sync needs the whole of dynatick: pip install 'dynatick[cli]'\n"


PAGE = "how-to/declared-schedules.md"


@pytest.fixture
def reminders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The project of the page, in which commands run, without the libraries of a function built for it."""
    (settings,) = (text for language, text in blocks(f"docs/{PAGE}") if language == "toml")
    (tmp_path / "handlers.py").write_text(python()[0])
    (tmp_path / "dynatick.toml").write_text(settings)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("dynatick_stack.build.libraries", lambda say: LIBRARIES)
    yield
    sys.modules.pop("handlers", None)


def python() -> list[str]:
    return [text for language, text in blocks(f"docs/{PAGE}") if language == "python"]


def test_the_commands_of_the_page_print_what_it_shows(shell: Shell, world: InProcess, reminders: None) -> None:
    world.actions.names = lambda: ["log", "send-digest"]  # type: ignore[method-assign]
    world.next_tick()
    codes = []
    for command, *printed in documented(PAGE):
        ended = shell(*shlex.split(command.partition(" > ")[0])[1:])
        codes.append(ended.code)
        assert " > " in command or ended.lines == printed, command
    assert codes == [0, 0, 0, 0, 7]
    assert [one["result"] for one in shell("schedule", "sync", "--stage", "prod", "-o", "json").json["schedules"]] == [
        "conflict", "conflict",
    ]  # fmt: skip


def test_the_programs_of_the_page_do_the_same(
    world: InProcess, reminders: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, own_code, test = python()
    client = TaskClient(world.store, clock=world.clock, check_actions=False)
    monkeypatch.setattr(TaskClient, "connect", lambda: client)
    exec(own_code, {})
    assert capsys.readouterr().out == "sales-digest create \n"
    names: dict[str, object] = {}
    exec(test, names)
    with VirtualInstallation("handlers") as virtual:
        names["test_the_digest_comes_on_working_days"](virtual)  # type: ignore[operator]
