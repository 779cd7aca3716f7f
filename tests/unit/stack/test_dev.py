"""dynatick dev: which files it watches and ships, what it refuses, and what it prints."""

from __future__ import annotations

import io
import json
import os
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pydantic
import pytest

from dynatick.cli.exit_code import CommandFailed, ExitCode
from dynatick.client.views import TaskView
from dynatick_stack import release_commands, template
from dynatick_stack.dev import handlers, sources
from dynatick_stack.dev.display import Display
from dynatick_stack.dev.handlers import HandlersError
from dynatick_stack.dev.insertions import Inserted, Insertion
from dynatick_stack.dev.sources import Saves
from dynatick_stack.errors import BuildError
from dynatick_stack.logs import LogLine
from dynatick_stack.project import Project
from dynatick_stack.project_files import kept_here, project_files, select

LIBRARIES = Path(pydantic.__file__).parents[1]
HANDLERS = """
from dynatick import task
from shop import texts

print("imported")

@task("greet")
def greet(payload: dict[str, object]) -> object:
    return texts.GREETING
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    for name in ("shop", ".hidden", "venv", "node_modules", "__pycache__", "tests", "shop/data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "texts.py").write_text('GREETING = "Hello"\n')
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    (tmp_path / "handlers.py").write_text(HANDLERS)
    others = ("shop/data/mail.html", ".env", "dynatick.toml", "test_it.py", "shop/texts.pyi", "app.py")
    for name in ("requirements.txt", *others):
        (tmp_path / name).touch()
    return Project(folder=tmp_path, name="a", module="handlers", requirements=tmp_path / "requirements.txt")


def check(project: Project, required: Path | None, environment: Mapping[str, str]) -> Mapping[str, str | None]:
    return handlers.check(project, project_files(project), LIBRARIES, required, environment).actions


# --- Files ------------------------------------------------------------------------------------------------------------


def test_the_layer_holds_the_projects_files(project: Project) -> None:
    content = sources.layer(project.folder, sources.snapshot(project))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = ("handlers.py", "shop/data/mail.html", "shop/data/texts.py", "shop/texts.py")
        assert archive.namelist() == [f"python/{name}" for name in names]
    assert sources.layer(project.folder, sources.snapshot(project)) == content


@pytest.mark.parametrize("pattern", ["data", "shop/data", "shop/d*", "da[t]a"])
def test_a_project_excludes_further_files_by_name_or_path(project: Project, pattern: str) -> None:
    files = project_files(replace(project, exclude=(pattern, "*.html", "data.html")))
    assert [path.name for path in files] == ["handlers.py", "texts.py"]
    assert list(project_files(replace(project, exclude=("dat", "texts")))) == list(project_files(project))


def test_what_may_be_secret_and_links_to_elsewhere_stay_here(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "passwd.txt").touch()
    before = [path.name for path in project_files(project)]
    for name in ("id_rsa", "id_ed25519.pub", "ca.pem", "tls.key", "a.p12", "prod.env", "terraform.tfstate.backup"):
        (project.folder / name).touch()
    (project.folder / "link.txt").symlink_to(elsewhere / "passwd.txt")
    (project.folder / "folder").symlink_to(elsewhere)
    assert [path.name for path in project_files(project)] == before
    (project.folder / "own.txt").symlink_to(project.folder / before[0])
    assert sorted(path.name for path in project_files(project)) == sorted([*before, "own.txt"])


@pytest.mark.parametrize("target", [".env", ".hidden/texts.py", "tests/texts.py", "venv/texts.py", "db.sqlite3"])
def test_a_link_to_what_stays_here_in_any_case_stays_too(project: Project, target: str) -> None:
    (project.folder / "db.sqlite3").touch()
    before = list(project_files(project))
    (project.folder / "settings").symlink_to(target)
    (project.folder / "shop" / "settings.py").symlink_to(Path("..", "settings"))
    assert list(project_files(project)) == before


def test_a_link_to_what_may_be_secret_stays_here_and_is_named(project: Project) -> None:
    (project.folder / "prod.env").touch()
    (project.folder / "current").symlink_to("prod.env")
    assert names(list(kept_here(project)), project.folder) == ["current", "prod.env"]
    assert "current" not in names(list(project_files(project)), project.folder)


def test_a_link_whose_target_is_left_out_for_its_name_alone_is_a_part(project: Project) -> None:
    (project.folder / "web.py").symlink_to("app.py")
    (project.folder / "texts.html").symlink_to("shop/data/mail.html")
    found = names(list(project_files(replace(project, exclude=("data",)))), project.folder)
    assert found == ["handlers.py", "texts.html", "web.py", "shop/texts.py"]


def test_a_program_among_the_files_stays_one(project: Project) -> None:
    program = project.folder / "convert.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    layer = zipfile.ZipFile(io.BytesIO(sources.layer(project.folder, sources.snapshot(project))))
    rights = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in layer.infolist()}
    assert rights.pop("python/convert.sh") == 0o755
    assert set(rights.values()) == {0o644}, "whatever the machine's umask is"


def test_what_is_saved_made_or_removed_is_a_change(project: Project) -> None:
    saves = Saves(sources.snapshot(project))
    assert saves.take(sources.snapshot(project)) == []
    names = ("handlers.py", "new.py", "shop/texts.py", "shop/data/mail.html")
    saved, made, removed, data = (project.folder / name for name in names)
    os.utime(saved, (1, 1))
    made.touch()
    removed.unlink()
    data.write_text("Hello")
    for name in ("dev.log", "db.sqlite3", "db.sqlite3-journal"):  # the web application writes its database all the time
        (project.folder / name).write_text("no part")
    assert saves.take(sources.snapshot(project)) == [], "they may be written still"
    assert saves.take(sources.snapshot(project)) == sorted([saved, made, removed, data])
    assert saves.take(sources.snapshot(project)) == []


def test_a_file_that_is_emptied_before_it_is_written_is_saved_once(project: Project) -> None:
    saves, file = Saves(sources.snapshot(project)), project.folder / "handlers.py"
    for content in ("", HANDLERS + "# saved\n"):
        file.write_text(content)
        assert saves.take(sources.snapshot(project)) == []
    assert saves.take(sources.snapshot(project)) == [file]
    assert saves.taken == sources.snapshot(project)


def test_a_file_that_is_written_again_and_again_does_not_hold_up_others(project: Project) -> None:
    saves = Saves(sources.snapshot(project))
    written, file = project.folder / "shop" / "texts.py", project.folder / "handlers.py"
    file.write_text(HANDLERS + "# saved\n")
    taken = []
    for n in range(3):
        written.write_text("#" * n)
        taken += saves.take(sources.snapshot(project))
    assert taken == [file]
    written.unlink()
    assert [saves.take(sources.snapshot(project)) for _ in range(2)] == [[], [written]]


# --- What goes to AWS -------------------------------------------------------------------------------------------------


def git(folder: Path, *arguments: str) -> None:
    own = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *own, *arguments], cwd=folder, check=True, capture_output=True)


def names(paths: Sequence[Path], folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in paths]


def test_without_git_python_files_go_and_others_are_undecided(project: Project) -> None:
    found = select(project)
    assert names(found.files, project.folder) == ["handlers.py", "shop/texts.py", "shop/data/texts.py"]
    assert (names(found.undecided, project.folder), found.left_out) == (["shop/data/mail.html"], ())


@pytest.mark.parametrize("pattern", ["*.html", "mail.html", "shop/data/mail.html", "shop/data", "data", "shop/*.html"])
def test_what_is_named_goes_and_decides_about_the_others(project: Project, pattern: str) -> None:
    (project.folder / "customers.csv").touch()
    found = select(replace(project, include=(pattern,)))
    assert "shop/data/mail.html" in names(found.files, project.folder)
    assert (found.undecided, names(found.left_out, project.folder)) == ((), ["customers.csv"])
    none = select(replace(project, include=()))
    assert names(none.left_out, project.folder) == ["customers.csv", "shop/data/mail.html"]


def test_in_git_what_it_tracks_goes_and_what_is_named(project: Project) -> None:
    git(project.folder, "init")
    assert select(project).undecided, "git tracks nothing yet, so it says nothing"
    git(project.folder, "add", "handlers.py", "shop/data/mail.html", "test_it.py", "requirements.txt")
    (project.folder / "customers.csv").touch()
    found = select(project)
    assert names(found.files, project.folder) == ["handlers.py", "shop/data/mail.html"]
    assert found.undecided == ()
    assert names(found.left_out, project.folder) == ["customers.csv", "shop/texts.py", "shop/data/texts.py"]
    (project.folder / "shop/data/mail.html").unlink()
    found = select(replace(project, include=("shop",), exclude=("data",)))
    assert names(found.files, project.folder) == ["handlers.py", "shop/texts.py"]


def test_a_link_goes_if_what_it_leads_to_would(project: Project) -> None:
    """git keeps the link, not the export that it leads to."""
    (project.folder / "export.csv").touch()
    for link, target in (("latest.csv", "export.csv"), ("latest.py", "export.csv"), ("texts.py", "shop/texts.py")):
        (project.folder / link).symlink_to(target)
    found = select(project)
    assert "texts.py" in names(found.files, project.folder)
    assert {"latest.csv", "latest.py"} <= set(names(found.undecided, project.folder))
    git(project.folder, "init")
    git(project.folder, "add", "handlers.py", "shop/texts.py", "latest.csv", "latest.py", "texts.py")
    found = select(project)
    assert names(found.files, project.folder) == ["handlers.py", "texts.py", "shop/texts.py"]
    assert {"export.csv", "latest.csv", "latest.py"} <= set(names(found.left_out, project.folder))
    assert project.folder / "latest.csv" in select(replace(project, include=("latest.csv",))).files


def test_a_project_below_the_top_of_its_repository_is_in_git_too(project: Project, tmp_path: Path) -> None:
    git(tmp_path, "init")
    git(tmp_path, "add", "shop")
    below = replace(project, folder=tmp_path / "shop", requirements=None)
    assert names(select(below).files, tmp_path) == ["shop/texts.py", "shop/data/mail.html", "shop/data/texts.py"]


def test_a_hook_of_git_does_not_change_what_goes(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """git gives its hooks variables that name another index."""
    git(project.folder, "init")
    git(project.folder, "add", "handlers.py")
    monkeypatch.setenv("GIT_INDEX_FILE", str(project.folder / "no-such-index"))
    assert names(select(project).files, project.folder) == ["handlers.py"]


def test_a_repository_that_git_does_not_read_is_no_folder_without_git(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.folder / ".git").mkdir()
    with pytest.raises(BuildError, match=f"^git does not say what it tracks in {project.folder}: fatal: "):
        select(project)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildError, match=r"^git is needed to know what it tracks in .*: No such file"):
        select(project)


class Terminal:
    """Standard input of a person, or of nobody."""

    def __init__(self, is_person: bool) -> None:
        self._is_person = is_person

    def isatty(self) -> bool:
        return self._is_person


@pytest.mark.parametrize("answer", [True, False])
def test_a_person_is_asked_about_what_nobody_named(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: bool
) -> None:
    monkeypatch.setattr(release_commands.sys, "stdin", Terminal(True))
    monkeypatch.setattr(release_commands.typer, "confirm", lambda question: answer)
    if answer:
        found = release_commands._files(project, yes=False)
        assert sorted(names(found, project.folder)) == sorted(names(list(project_files(project)), project.folder))
    else:
        with pytest.raises(
            CommandFailed, match=r"^Nothing was deployed\. To go on without them: \[handlers\] include = \[\]$"
        ):
            release_commands._files(project, yes=False)
    assert "named by [handlers] include:\n  shop/data/mail.html\n" in capsys.readouterr().err


@pytest.mark.parametrize(("yes", "is_person"), [(True, True), (True, False), (False, False)])
def test_yes_and_nobody_wave_no_data_through(
    project: Project, monkeypatch: pytest.MonkeyPatch, yes: bool, is_person: bool
) -> None:
    monkeypatch.setattr(release_commands.sys, "stdin", Terminal(is_person))
    with pytest.raises(
        CommandFailed, match=r'include = \["shop/data/mail.html"\], or none, include = \[\]$'
    ) as refused:
        release_commands._files(project, yes=yes)
    assert refused.value.code == ExitCode.USAGE
    found = release_commands._files(replace(project, include=("mail.html",)), yes=yes)
    assert "shop/data/mail.html" in names(found, project.folder)


def test_looking_asks_nothing_and_says_that_a_deployment_will(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    release_commands._files(project, yes=False, asks=False)
    assert capsys.readouterr().err.endswith("dynatick deploy asks whether they go to AWS with the handlers\n")


def test_what_stays_here_is_named(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    release_commands._files(replace(project, include=()), yes=True)
    said = "Not packaged, since neither git tracks nor [handlers] include names them: shop/data/mail.html\n"
    assert capsys.readouterr().err == said


# --- The check --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("def x(:\n", "handlers.py:10  SyntaxError: invalid syntax"),
        ("texts.NOTHING\n", "handlers.py:10  AttributeError: module 'shop.texts' has no attribute 'NOTHING'"),
        ("import os; os._exit(3)\n", "handlers ends the process that imports it: imported"),
        ("import sys; sys.exit('over')\n", "handlers ends the process that imports it: over"),
        ("@task('two')\ndef two(): ...\n", "handler two: should take (payload) or (payload, context)"),
        ("import tests.texts\n", "handlers.py:10  ModuleNotFoundError: No module named 'tests'"),
        ("import app\n", "handlers.py:10  ModuleNotFoundError: No module named 'app'; "
         "a module app is in the functions already, so yours needs another name"),
        ("del greet\n", "handlers has no function that is declared by @task"),
    ],
)  # fmt: skip
def test_handlers_that_can_not_are_refused_with_their_line(project: Project, more: str, said: str) -> None:
    with (project.folder / "handlers.py").open("a") as file:
        file.write(more)
    with pytest.raises(HandlersError) as refused:
        check(project, None, {})
    assert said in str(refused.value)


OTHER = "@task('{}')\ndef other(payload): ...\n"


@pytest.mark.parametrize(
    ("more", "parameters", "said"),
    [
        (OTHER.format("sqs"), {}, "action: 'sqs' is a built-in's name"),
        (OTHER.format("greet"), {}, "action: 'greet' is there twice"),
        (
            "@task('long', timeout_seconds=300)\ndef other(payload): ...\n",
            {},
            "timeout_seconds of 300; expected at most",
        ),
        (
            "",
            {"AllowedActions": "greeet,log"},
            "AllowedActions: there is no action 'greeet' here; known are greet, log",
        ),
        ("", {"AllowedActions": "greet,sqs"}, "AllowedActions: there is no action 'sqs' here"),
        ("", {"ActionRateLimits": "greeet=10/s"}, "ActionRateLimits: there is no action 'greeet' here"),
        ("", {"ActionRateLimits": "greet=1000000/h"}, "ActionRateLimits: 'greet=1000000/h' is not a limit"),
        ("", {"ActionRateLimits": "greet:a.example.com=1/s"}, "names a host, which only webhooks have"),
        (
            OTHER.format("mail:send"),
            {"ActionRateLimits": "mail:send=1/s"},
            "no action with a colon in its name can be limited",
        ),
        ("", {"AllowedWebhookHosts": "https://a.example.com"}, "AllowedWebhookHosts: 'https://a.example.com' is not a"),
        (
            "",
            {"WebhookPrivateHosts": "hooks.internal:8080"},
            "WebhookPrivateHosts: 'hooks.internal:8080' is not a host",
        ),
        (
            "",
            {"AllowedTargetArns": "arn:aws:sqs:eu-west-1"},
            "AllowedTargetArns: 'arn:aws:sqs:eu-west-1' is not an ARN",
        ),
        (
            "",
            {"AssignmentPolicy": "assignment:by_prio"},
            "cannot load 'assignment:by_prio' (module 'assignment' has no",
        ),
    ],
)
def test_what_processor_or_scheduler_refuse_is_refused_in_their_words(
    project: Project, more: str, parameters: dict[str, str], said: str
) -> None:
    with (project.folder / "handlers.py").open("a") as file:
        file.write(more)
    with pytest.raises(HandlersError) as refused:
        handlers.check(project, project_files(project), LIBRARIES, None, {}, {**template.defaults(), **parameters})
    assert said in str(refused.value)


@pytest.mark.parametrize("module", ["handlers", "policies"])
def test_a_policy_is_loaded_without_the_environment_of_the_handlers(project: Project, module: str) -> None:
    reads = "import os\nSENDER = os.environ['SENDER']\ndef calm(task, now, grid): ...\n"
    with (project.folder / "handlers.py").open("a") as file:
        file.write(reads if module == "handlers" else "import policies\n")
    (project.folder / "policies.py").write_text(reads)
    parameters = {**template.defaults(), "AssignmentPolicy": f"{module}:calm"}
    with pytest.raises(HandlersError, match=r"\(KeyError: 'SENDER'\); the scheduler, .* no variables and secrets"):
        handlers.check(project, project_files(project), LIBRARIES, None, {"SENDER": "me"}, parameters)


def test_a_policy_is_the_schedulers_whatever_the_project_has_of_its_name(project: Project) -> None:
    (project.folder / "assignment.py").touch()
    with (project.folder / "handlers.py").open("a") as file:
        file.write("import assignment\n")
    found = handlers.check(project, project_files(project), LIBRARIES, None, {}, template.defaults())
    assert found.actions == {"greet": None}


def test_handlers_are_named_and_environment_and_requirements_are_there_at_their_import(
    project: Project, tmp_path: Path
) -> None:
    required = tmp_path / ".required"
    required.mkdir()
    (required / "lately_installed.py").write_text("NAME = 'x'\n")
    with (project.folder / "handlers.py").open("a") as file:
        file.write("import os, lately_installed\nassert os.environ['SENDER'] and os.environ['AWS_REGION']\n")
    assert check(project, required, {"SENDER": "me@example.com"}) == {"greet": None}
    assert not list(project.folder.glob("__pycache__/*.pyc"))
    with pytest.raises(HandlersError, match="KeyError: 'SENDER'"):
        check(project, required, {})


def test_requirements_are_installed_once_for_each_content(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "CACHE", tmp_path / ".cache")
    wheel = tmp_path / "lately_installed-1-py3-none-any.whl"
    about = "lately_installed-1.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("lately_installed.py", "NAME = 'x'\n")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: lately-installed\nVersion: 1\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    file = tmp_path / "requirements.txt"
    file.write_text(f"{wheel}\n")
    said: list[str] = []
    folder = handlers.requirements(project, said.append)
    assert folder is not None and (folder / "lately_installed.py").is_file()
    assert handlers.requirements(project, said.append) == folder
    assert said == ["Installing requirements.txt (once)"]
    with zipfile.ZipFile(wheel, "a") as archive:  # built anew, of the same version
        archive.writestr("added.py", "")
    folder = handlers.requirements(project, said.append)
    assert folder is not None and (folder / "added.py").is_file()
    file.write_text("# nothing any more\n-r base.txt\n")
    (tmp_path / "base.txt").touch()
    nothing = handlers.requirements(project, said.append)
    assert nothing != folder
    (tmp_path / "base.txt").write_text(f"{wheel}\n")
    folder = handlers.requirements(project, said.append)
    assert folder is not None and (folder / "lately_installed.py").is_file(), "what the file names counts as well"
    assert handlers.requirements(replace(project, requirements=None), said.append) is None


# --- Secrets ----------------------------------------------------------------------------------------------------------


def test_secrets_are_environment_variables_here_and_those_that_are_missing_are_named(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = replace(project, secrets={"SMTP_PASSWORD": "ssm:/smtp", "TOKEN": "secretsmanager:a#b", "EMPTY": "ssm:a"})
    monkeypatch.setenv("SMTP_PASSWORD", "hunter2")
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(HandlersError) as refused:
        handlers.local_secrets(mine)
    assert str(refused.value).startswith("Not set: TOKEN, EMPTY. dynatick.toml names such secrets")
    monkeypatch.setenv("TOKEN", "b")
    monkeypatch.setenv("EMPTY", "c")
    assert handlers.local_secrets(mine) == {"SMTP_PASSWORD": "hunter2", "TOKEN": "b", "EMPTY": "c"}


# --- Lines ------------------------------------------------------------------------------------------------------------

AT = datetime(2026, 11, 23, 2, 0, 45, tzinfo=UTC)
ATTEMPT = {
    "level": "DEBUG", "action": "attempt_recorded", "task_id": "mail-2", "run": 1, "turn": 0, "attempt": 1,
    "max_attempts": 6, "handler": "send-reminder",
    "started_at": "2026-11-23T02:00:45.040Z", "due_at": "2026-11-23T02:00:45Z",
}  # fmt: skip


def line(record: dict[str, object] | str) -> LogLine:
    text = record if isinstance(record, str) else json.dumps(record)
    return LogLine(at=AT, function="processor", text=text, record=None if isinstance(record, str) else record)


def row(**values: object) -> TaskView:
    return TaskView.from_row({"taskId": "mail-2", "run": 1, "attempt": 1, **values})  # type: ignore[dict-item]


def test_a_completed_task_is_a_line_as_far_as_it_is_known(tmp_path: Path) -> None:
    task = row(status="completed", finishedAt="2026-11-23T02:00:45.052Z")
    completed = line({**ATTEMPT, "result": "completed"})
    shown = "02:00:45  completed  send-reminder    mail-2           40 ms after due"
    assert Display(folder=tmp_path).show([completed], {"mail-2": task}) == [f"{shown}, 12 ms"]
    assert Display(folder=tmp_path).show([completed], {}) == [shown], "it is gone already"


def inserted(row: Mapping[str, object], *, at: datetime = AT) -> str:
    (text,) = Display(folder=Path()).show([], {}, Inserted(tasks=[Insertion.of(row, at)], since=AT))
    return text


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"action": "send", "dueAt": "2026-11-23T02:00:45.9Z"}, "send             mail-1           due now"),
        ({"action": "send"}, "send             mail-1           due now"),
        ({"action": "send", "delaySeconds": 90}, "send             mail-1           due at 02:02:15"),
        ({"taskDateTime": "2026-12-31#12:00"}, "log              mail-1           due at 2026-12-31 12:00:00"),
        ({"scheduleExpression": "rate(1 hour)"}, "log              mail-1           rate(1 hour)"),
        ({"dueAt": "tomorrow"}, "log              mail-1           dueAt: 'tomorrow' is not"),
        ({"taskId": "a\nb"}, r"log              a\nb             due now"),
    ],
)
def test_an_inserted_task_is_a_line_with_its_time(row: Mapping[str, object], said: str) -> None:
    assert inserted({"taskId": "mail-1", **row}).startswith(f"02:00:45  inserted   {said}")


def test_what_was_inserted_stands_before_what_became_of_it_and_many_are_counted(tmp_path: Path) -> None:
    ran = replace(line({**ATTEMPT, "result": "completed"}), at=AT + timedelta(milliseconds=40))
    later = replace(line("To Ada"), at=AT + timedelta(seconds=2))
    tasks = [Insertion.of({"taskId": f"t{n}"}, AT + timedelta(seconds=n // 21)) for n in range(22)]
    shown = Display(folder=tmp_path).show([ran, later], {}, Inserted(tasks=tasks, others=1000, since=AT))
    assert [text[:31] for text in (shown[0], *shown[19:])] == [
        "02:00:45  inserted   log       ",
        "02:00:45  inserted   log       ",
        "02:00:45  inserted   1,002 more",
        "02:00:45  completed  send-remin",
        "02:00:47  output     To Ada",
    ]
    assert Display(folder=tmp_path).show([], {}, Inserted(others=1, since=AT)) == ["02:00:45  inserted   1 task"]


def test_a_failed_attempt_has_the_projects_own_lines_of_the_traceback(project: Project) -> None:
    frames = [
        ("/x/python/dynatick/actions/handlers.py", 131, "run", "result = self._call(payload)"),
        ("/x/python/handlers.py", 14, "send_reminder", "deliver(mail.to)"),
        ("/x/libraries/pydantic/main.py", 1, "validate", "raise"),
    ]
    parts = ("file", "line", "function", "statement")
    trace = {"value": "no such mailbox", "frames": [dict(zip(parts, frame, strict=True)) for frame in frames]}
    raised = {**ATTEMPT, "action": "handler_raised", "exception_name": "ValueError", "stack_trace": trace}
    display = Display(folder=project.folder)
    lines = [line(raised), line({**ATTEMPT, "result": "retried"})]
    task = row(status="scheduled", nextAttemptAt="2026-11-23T02:00:50Z")
    assert display.wanted(lines) == ["mail-2"]
    assert display.show(lines, {"mail-2": task}) == [
        "02:00:45  failed     send-reminder    mail-2           attempt 1 of 6, again at 02:00:50   "
        "ValueError: no such mailbox",
        "            handlers.py:14 in send_reminder",
        "              deliver(mail.to)",
    ]


def test_an_attempt_that_is_retried_says_why_though_a_later_one_has_begun(tmp_path: Path) -> None:
    attempts = [{"run": 1, "attempt": n, "error": f"answered 50{n}"} for n in (1, 2)]
    task = row(status="running", attempt=3, attempts=attempts)
    (shown,) = Display(folder=tmp_path).show([line({**ATTEMPT, "result": "retried"})], {"mail-2": task})
    assert shown == "02:00:45  failed     send-reminder    mail-2           attempt 1 of 6   answered 501"


def test_a_batch_that_asks_again_whether_its_members_have_ended_says_nothing(tmp_path: Path) -> None:
    polls, ended = ({**ATTEMPT, "handler": "dynatick.batch", "result": result} for result in ("rescheduled", "failed"))
    (shown,) = Display(folder=tmp_path).show([line(polls), line(ended)], {})
    assert shown.startswith("02:00:45  failed     dynatick.batch")
    (shown,) = Display(folder=tmp_path).show([line({**ATTEMPT, "result": "rescheduled"})], {})
    assert shown.startswith("02:00:45  rescheduled send-reminder")


def test_ticks_are_shown_once_and_what_functions_say_unless_it_is_routine(tmp_path: Path) -> None:
    idle = line({"level": "INFO", "action": "pass_ended", "tick": "2026-11-23#02:00", "completed": 0})
    lines = [
        idle,
        idle,
        line({"level": "INFO", "action": "pass_ended", "tick": "2026-11-23#02:01", "completed": 3, "failed": 1}),
        line("To Ada: It is time"),
        line({"level": "INFO", "action": "wake_up_ended", "message": "wake-up ended"}),
        line({"level": "INFO", "action": "reminder_due", "message": "reminder due", "task_id": "a"}),
        line({"level": "WARNING", "action": "reconcile_ended", "message": "reconcile ended", "found": 2}),
    ]
    assert Display(folder=tmp_path).show(lines, {}) == [
        "02:00:45  tick       2026-11-23#02:01 3 completed, 1 failed",
        "02:00:45  output     To Ada: It is time",
        "02:00:45  processor  reminder_due task_id=a",
        "02:00:45  processor  WARNING reconcile_ended found=2",
    ]
