"""The build for the emulator is complete, and is made again exactly when something changed."""

import os
import shutil
import time
import zipfile
from pathlib import Path

import pytest

from dynatick_stack import build, files, template
from dynatick_stack.errors import BuildError


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The parts of a checkout that are built, with a package and functions of one line."""
    shutil.copy(template.TEMPLATE, tmp_path / "template.yaml")
    functions = ("api/app.py", "importer/app.py", "processor/app.py", "processor/handlers.py", "scheduler/app.py")
    for path in ("shared/dynatick/__init__.py", "requirements/layer.txt", *(f"functions/{one}" for one in functions)):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("# nothing to fetch\n")
    return tmp_path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def names(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def test_everything_that_the_template_names_is_built(checkout: Path, cache: Path) -> None:
    artifacts = build.build(root=checkout, cache=cache)
    assert artifacts.keys() == {
        "DynatickLayer", "ApiFunction", "ImporterFunction", "ProcessorFunction", "SchedulerFunction",
    }  # fmt: skip
    assert names(artifacts["ProcessorFunction"]) == {"app.py", "handlers.py"}
    layer = names(artifacts["DynatickLayer"])
    assert "python/dynatick/__init__.py" in layer
    assert [name for name in layer if name.endswith(".pyc")], "a layer without byte code starts slowly"


def test_nothing_is_built_twice_and_a_change_under_another_name(checkout: Path, cache: Path) -> None:
    first = build.build(root=checkout, cache=cache)
    numbers = {path: path.stat().st_ino for path in first.values()}
    # What running the code leaves behind is no change of the code.
    left_behind = checkout / "functions" / "processor" / "__pycache__" / "app.cpython-313.pyc"
    left_behind.parent.mkdir()
    left_behind.write_bytes(b"")
    assert build.build(root=checkout, cache=cache) == first
    assert {path: path.stat().st_ino for path in first.values()} == numbers
    (checkout / "shared" / "dynatick" / "__init__.py").write_text("changed = True\n")
    changed = build.build(root=checkout, cache=cache)
    assert changed["DynatickLayer"] != first["DynatickLayer"]
    assert changed["ProcessorFunction"] == first["ProcessorFunction"]
    assert first["DynatickLayer"].exists(), "another session may be about to upload it"


def test_the_cache_is_its_owners_alone(checkout: Path, cache: Path) -> None:
    cache.mkdir(exist_ok=True)
    cache.chmod(0o755)
    artifacts = build.build(root=checkout, cache=cache)
    assert cache.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in artifacts.values()} == {0o600}


def test_old_builds_are_discarded(checkout: Path, cache: Path) -> None:
    cache.mkdir()
    names = ("ProcessorFunction-0123456789abcdef.zip", "ProcessorFunction-fedcba9876543210.zip")
    old, recent = (cache / name for name in names)
    for path, days in ((old, 8), (recent, 6)):
        path.write_bytes(b"")
        at = time.time() - days * 24 * 3600
        os.utime(path, (at, at))
    build.build(root=checkout, cache=cache)
    assert not old.exists()
    assert recent.exists()


def test_libraries_are_installed_once_per_lock_and_kept_however_old_while_they_are_used(
    checkout: Path, cache: Path
) -> None:
    said: list[str] = []
    used = build.libraries(said.append, root=checkout, cache=cache)
    at = time.time() - 2 * files.KEEP_SECONDS
    os.utime(used, (at, at))
    assert build.libraries(said.append, root=checkout, cache=cache) == used
    assert len(said) == 1
    (checkout / "requirements" / "layer.txt").write_text("# of another release\n")
    assert build.libraries(said.append, root=checkout, cache=cache) != used
    assert used.exists()


def test_an_installation_that_fails_says_why_and_is_tried_again(checkout: Path, cache: Path) -> None:
    lock = checkout / "requirements" / "layer.txt"
    lock.write_text("./no-such-folder\n")
    for _ in range(2):
        with pytest.raises(BuildError, match="no-such-folder"):
            build.libraries(print, root=checkout, cache=cache)


def test_a_function_without_an_entry_point_is_named(checkout: Path, cache: Path) -> None:
    (checkout / "functions" / "scheduler" / "app.py").unlink()
    with pytest.raises(BuildError, match=r"SchedulerFunction: there is no app\.py"):
        build.build(root=checkout, cache=cache)
