"""A Django project from an empty folder: that of docs/how-to/django.md, with what `django-admin` writes."""

from __future__ import annotations

import shutil
from importlib import metadata
from pathlib import Path

import pytest
from tests.frameworks.page import run, write_project

pytestmark = pytest.mark.long

OWN = Path(__file__).parent
# A Django without a tasks framework of its own, as the page says.
INSTALLED = 'INSTALLED_APPS += ["dynatick.django"'
BEFORE_6 = {
    "shop/tasks.py": ("from django.tasks import", "from django_tasks import"),
    "shop/more_tasks.py": ("from django.tasks import", "from django_tasks import"),
    "mysite/settings.py": (f"{INSTALLED}]", f'{INSTALLED}, "django_tasks"]'),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return new_project(tmp_path / "project")


def new_project(folder: Path) -> Path:
    """In an empty folder."""
    folder.mkdir()
    run(folder, "-m", "django", "startproject", "mysite", ".")
    run(folder, "manage.py", "startapp", "shop")
    names = write_project("django.md", folder)
    assert names == {
        "mysite/settings.py", "shop/tasks.py", "dynatick.toml", "requirements.txt", "handlers.py", "shop/tests.py",
    }  # fmt: skip
    shutil.copy(OWN / "django_more_tasks.py", folder / "shop" / "more_tasks.py")
    for name, (ours, theirs) in BEFORE_6.items() if metadata.version("django") < "6" else ():
        text = (folder / name).read_text(encoding="utf-8")
        assert text.count(ours) == 1
        (folder / name).write_text(text.replace(ours, theirs), encoding="utf-8")
    return folder


def test_the_project_of_the_page_passes_its_tests(project: Path) -> None:
    assert "Ran 1 test" in run(project, "manage.py", "test")


def test_the_backend_does_what_django_wants_of_one(project: Path) -> None:
    shutil.copy(OWN / "django_backend.py", project / "shop" / "tests.py")
    with (project / "mysite" / "settings.py").open("a", encoding="utf-8") as settings:
        settings.write('DATABASES["other"] = {**DATABASES["default"], "NAME": BASE_DIR / "other.sqlite3"}\n')
    said = run(project, "manage.py", "test")
    assert "\nOK\n" in said and "skipped" not in said


def test_without_the_packages_of_the_command_line_manage_py_names_them(project: Path) -> None:
    (project / "typer.py").write_text("raise ModuleNotFoundError('No module named typer')\n")
    with pytest.raises(
        AssertionError, match=r"CommandError: dynatick needs more packages: pip install 'dynatick\[cli\]'"
    ):
        run(project, "manage.py", "dynatick", "status")


def test_manage_py_has_the_commands(project: Path) -> None:
    assert "Show the installation in a browser" in run(project, "manage.py", "dynatick", "ui", "--help")
    with pytest.raises(AssertionError, match="no table"):
        run(project, "manage.py", "dynatick", "status")
