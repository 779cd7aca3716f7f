"""The projects of the how-tos with `dynatick dev`: processor, table and client are real, and so is Celery's worker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest
from tests.e2e.programs import DYNATICK, Running, environment
from tests.frameworks import test_celery, test_django
from tests.newcomer import run

from dynatick_stack.init import write_project

pytestmark = pytest.mark.long

RETRIED = """

@app.task(bind=True)
def retried(self):
    if self.request.retries == 0:
        raise self.retry(countdown=3)
    return f"retry {self.request.retries}"
"""
LOCAL = f'eval "$("{sys.executable}" -m dynatick.cli local env)"'
CELERY = """
from celery import chain
from dynatick import TaskClient
from shop import remind, report, retried

print(remind.apply_async([4711], countdown=3).get(timeout=240))
print(chain(remind.s(4712), report.si("south").set(countdown=3)).apply_async().get(timeout=240))
again = retried.delay()
print(again.get(timeout=240), TaskClient.connect().wait(f"{again.id}.retry-1").status)
late = remind.apply_async([4713], countdown=3600)
late.revoke()
print(TaskClient.connect().get(late.id).status)
"""
DJANGO = """
import time
from datetime import timedelta
from django.utils import timezone
from shop.tasks import remind

result = remind.using(run_after=timezone.now() + timedelta(seconds=3)).enqueue(4711)
for _ in range(1200):
    result.refresh()
    if result.is_finished:
        break
    time.sleep(0.2)  # wait: between two looks at the result
print(result.return_value, result.attempts)
"""


@contextmanager
def dev(folder: Path, handlers: str, *packages: str) -> Iterator[Running]:
    """`dynatick dev` in a project whose handlers need these packages."""
    (folder / "handlers.py").write_text(handlers, encoding="utf-8")
    required = "".join(f"{package}=={metadata.version(package)}\n" for package in packages)
    (folder / "requirements.txt").write_text(required, encoding="utf-8")
    settings = folder / "dynatick.toml"
    if "requirements" not in (text := settings.read_text(encoding="utf-8")):
        settings.write_text(f'{text}requirements = "requirements.txt"\n', encoding="utf-8")  # below [handlers]
    running = Running(*DYNATICK, "dev", cwd=folder, environ=environment(PYTHONUNBUFFERED="1"))
    try:
        running.shows(r"^Handlers: ", within=180)
        yield running
    finally:
        running.end()


def in_application(folder: Path, command: str) -> str:
    """Runs a command where the variables name the local stack."""
    return run(f"{LOCAL}; {command}", folder, environment(PYTHONPATH=str(folder)), lambda line: None)


def files(folder: Path) -> str:
    """Begins a project of Dynatick around what is there, unless the page does, and returns the page's handlers."""
    handlers = (folder / "handlers.py").read_text(encoding="utf-8")
    if (folder / "dynatick.toml").exists():
        return handlers
    (folder / "handlers.py").unlink()
    write_project(folder)
    (folder / "test_handlers.py").unlink(missing_ok=True)
    return handlers


def test_a_message_is_sent_by_the_processor_and_executed_by_a_worker(tmp_path: Path) -> None:
    folder = tmp_path.resolve() / "reminders"
    folder.mkdir()
    test_celery.project(folder, at=tmp_path.resolve() / "broker")
    (folder / "application.py").write_text(CELERY, encoding="utf-8")
    with (folder / "celeryconfig.py").open("a", encoding="utf-8") as configuration:
        configuration.write("dynatick_min_delay = 1\n")
    with (folder / "shop.py").open("a", encoding="utf-8") as application:
        application.write(RETRIED)
    with dev(folder, files(folder), "celery") as running:
        running.shows(r"^[\d:]{8}  schedule   created +report-north$")
        command = f'{LOCAL}; exec "{sys.executable}" -m celery -A shop worker --pool solo --loglevel INFO'
        environ = environment(PYTHONPATH=str(folder), PYTHONUNBUFFERED="1")
        worker = Running("bash", "-c", command, cwd=folder, environ=environ)
        try:
            said = in_application(folder, f'"{sys.executable}" application.py')
        finally:
            worker.end()
        assert said.splitlines() == [
            "order 4711 is not paid yet",
            "report of south",
            "retry 1 completed",
            "cancelled",
        ], worker.output


def test_a_task_of_django_is_run_by_the_processor(tmp_path: Path) -> None:
    folder = test_django.new_project(tmp_path.resolve() / "mysite")
    (folder / "application.py").write_text(DJANGO, encoding="utf-8")
    packages = ["django", *(["django-tasks"] if metadata.version("django") < "6" else [])]
    with dev(folder, files(folder), *packages):
        said = in_application(folder, f'"{sys.executable}" manage.py shell < application.py')
        assert said.splitlines()[-1] == "order 4711 is not paid yet 1"
