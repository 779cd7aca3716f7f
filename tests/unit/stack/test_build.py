"""What is built for the emulator: complete, and built again exactly when something changed."""

import os
import shutil
import time
import zipfile
from pathlib import Path

import pytest

from dynatick_stack import build, template
from dynatick_stack.errors import BuildError
from dynatick_stack.files import digest
from dynatick_stack.venv import interpreter_tag


def say(_: str) -> None:
    pass


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The parts of a checkout that are built, with a package and functions of one line."""
    shutil.copy(template.TEMPLATE, tmp_path / "template.yaml")
    for path in (
        "shared/dynatick/__init__.py",
        "functions/processor/app.py",
        "functions/processor/handlers.py",
        "functions/scheduler/app.py",
        "requirements/layer.txt",
    ):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("# nothing to fetch\n")
    return tmp_path


@pytest.fixture
def cache(tmp_path: Path, checkout: Path) -> Path:
    """A cache that holds the libraries already: fetching them is pip's business."""
    folder = tmp_path / "cache"
    folder.mkdir()
    lock = (checkout / "requirements" / "layer.txt").read_bytes()
    with zipfile.ZipFile(folder / f"libraries-{digest(lock, interpreter_tag())}.zip", "w") as archive:
        archive.writestr("python/boto3/__init__.py", "")
    return folder


def names(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def test_everything_that_the_template_names_is_built(checkout: Path, cache: Path) -> None:
    artifacts = build.build(say, root=checkout, cache=cache)
    assert artifacts.keys() == {"DynatickLayer", "ProcessorFunction", "SchedulerFunction"}
    assert names(artifacts["ProcessorFunction"]) == {"app.py", "handlers.py"}
    layer = names(artifacts["DynatickLayer"])
    assert {"python/boto3/__init__.py", "python/dynatick/__init__.py"} <= layer
    assert [name for name in layer if name.endswith(".pyc")], "a layer without byte code starts slowly"


def test_nothing_is_built_twice(checkout: Path, cache: Path) -> None:
    first = build.build(say, root=checkout, cache=cache)
    times = {path: path.stat().st_mtime_ns for path in first.values()}
    # What running the code leaves behind is no change of the code.
    left_behind = checkout / "functions" / "processor" / "__pycache__" / "app.cpython-313.pyc"
    left_behind.parent.mkdir()
    left_behind.write_bytes(b"")
    assert build.build(say, root=checkout, cache=cache) == first
    assert {path: path.stat().st_mtime_ns for path in first.values()} == times


def test_a_change_is_built_under_another_name(checkout: Path, cache: Path) -> None:
    first = build.build(say, root=checkout, cache=cache)
    (checkout / "shared" / "dynatick" / "__init__.py").write_text("changed = True\n")
    second = build.build(say, root=checkout, cache=cache)
    assert second["DynatickLayer"] != first["DynatickLayer"]
    assert second["ProcessorFunction"] == first["ProcessorFunction"]
    assert first["DynatickLayer"].exists(), "another session may be about to upload it"


def test_old_builds_are_discarded(checkout: Path, cache: Path) -> None:
    old = cache / "ProcessorFunction-0123456789abcdef.zip"
    old.write_bytes(b"")
    yesterday = time.time() - 25 * 3600
    os.utime(old, (yesterday, yesterday))
    build.build(say, root=checkout, cache=cache)
    assert not old.exists()


def test_a_function_without_an_entry_point_is_named(checkout: Path, cache: Path) -> None:
    (checkout / "functions" / "scheduler" / "app.py").unlink()
    with pytest.raises(BuildError, match=r"SchedulerFunction: there is no app\.py"):
        build.build(say, root=checkout, cache=cache)
