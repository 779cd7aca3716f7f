"""The wheel has what a project needs, and nothing else; it works in an environment without the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynatick_stack.template import ROOT

PACKAGED = "dynatick_stack/packaged"
TOOLS_OF_THE_CHECKOUT = ("bench", "checkout", "counting", "demo", "markdown", "reference")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def archive(wheel: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(wheel) as opened:
        yield opened


def test_it_holds_every_module_of_the_product_and_what_is_deployed(archive: zipfile.ZipFile) -> None:
    names = set(archive.namelist())
    product = {str(path.relative_to(ROOT / "shared")) for path in (ROOT / "shared" / "dynatick").rglob("*.py")}
    assert product | {"dynatick/py.typed"} <= names
    sample = "functions/processor/handlers.py"
    assert f"{PACKAGED}/{sample}" not in names, "it would hide the handlers of a project"
    functions = {str(path.relative_to(ROOT)) for path in (ROOT / "functions").glob("*/*.py")} - {sample}
    for path in ("template.yaml", "requirements/layer.txt", "requirements/local.txt", *functions):
        assert archive.read(f"{PACKAGED}/{path}") == (ROOT / path).read_bytes(), path


def test_it_holds_nothing_else(archive: zipfile.ZipFile) -> None:
    names = archive.namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"dynatick", "dynatick_stack"}
    for tool in TOOLS_OF_THE_CHECKOUT:
        assert not [name for name in names if name.startswith(f"dynatick_stack/{tool}")]
    assert not [name for name in names if "/test_" in name or "__pycache__" in name or "/." in name]
    home = str(Path.home()).encode()
    for name in names:
        content = archive.read(name)
        assert str(ROOT).encode() not in content and (len(home) < 3 or home + b"/" not in content), name


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel alone: no extra."""
    environment = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    subprocess.run([environment / "bin" / "pip", "install", "--quiet", wheel], check=True, capture_output=True)
    return environment / "bin"


def run(program: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program in a folder, with nothing of this checkout in its environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DYNATICK_"))}
    return subprocess.run(
        [program, *arguments], cwd=folder, env=kept, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.long
def test_the_client_needs_neither_the_command_line_nor_what_the_functions_import(bare: Path, tmp_path: Path) -> None:
    # It comes as far as a request, which nothing answers.
    use = (
        "import dynatick.testing\n"
        "from dynatick import StoreError, TaskClient, task\n"
        "client = TaskClient.connect('tasks', region='eu-central-1', endpoint_url='http://127.0.0.1:9')\n"
        "try: client.insert('a', action='log')\n"
        "except StoreError as error: print(error)\n"
    )
    used = run(bare / "python", "-c", use, folder=tmp_path)
    assert used.stdout.startswith("cannot read a row: "), used.stderr
    listed = run(bare / "python", "-m", "pip", "list", "--format", "freeze", folder=tmp_path).stdout.lower()
    for package in ("typer", "aws", "yaml", "uvicorn"):
        assert package not in listed


@pytest.mark.long
def test_the_command_line_says_which_extra_it_needs(bare: Path, tmp_path: Path) -> None:
    ended = run(bare / "dynatick", "--help", folder=tmp_path)
    assert (ended.returncode, "pip install 'dynatick[cli]'" in ended.stderr) == (1, True)


def test_links_of_its_description_lead_to_the_repository(archive: zipfile.ZipFile) -> None:
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    links = re.findall(r"\]\(([^)]+)\)", archive.read(name).decode())
    assert len(links) > 20 and not [link for link in links if not link.startswith(("https://", "#"))], links
