"""Runs every command and every example of a document as it stands, against the template deployed locally.

The fenced blocks ``sh`` and ``python`` of a document are run in order, in one shell, in a copy of the checkout; an
example that stands before the commands which start the stack is run after them. What can't be run here (it needs an
account, or is CI's own) must be named in ELSEWHERE, with the place that runs it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.e2e.programs import environment

from dynatick_stack import local
from dynatick_stack.build import libraries
from dynatick_stack.folders import CACHE
from dynatick_stack.venv import VENV, emulator_python

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "make demo": ".ci/run",
    "make test": ".ci/run",
    "sam build": "tests/sam/test_sam.py",
    "sam deploy --guided": "tests/sam/test_sam.py",
}
UNWANTED = shutil.ignore_patterns(".venv*", ".git", ".dynatick", ".*_cache", ".hypothesis", ".aws-sam")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document: str) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in BLOCK.finditer((ROOT / document).read_text(encoding="utf-8"))]


def is_elsewhere(language: str, text: str) -> bool:
    return language == "sh" and all(line in ELSEWHERE for line in text.strip().splitlines())


def run(document: str, tmp_path: Path) -> None:
    """Runs it; fails with all that it printed."""
    checkout = tmp_path / "dynatick"
    shutil.copytree(ROOT, checkout, symlinks=True, ignore=UNWANTED)
    _link_environment(checkout)
    lines = ["set -euo pipefail"]
    early: list[str] = []
    for language, text in blocks(document):
        if language == "python":
            example = f"python - <<'END_OF_EXAMPLE'\n{text}END_OF_EXAMPLE"
            (lines if len(lines) > 1 else early).append(example)
        elif language == "sh" and not is_elsewhere(language, text):
            lines += [text, *early]
            early = []
    script = "\n".join(lines)
    try:
        ran = subprocess.run(
            ["bash", "-c", script],
            cwd=checkout,
            env=_environment(tmp_path, checkout),
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
    finally:  # a document that fails half-way has not come to its `make down`
        local.down(state_dir=tmp_path / "state")
    assert ran.returncode == 0, f"{script}\n--- output\n{ran.stdout}\n--- errors\n{ran.stderr}"


def _link_environment(checkout: Path) -> None:
    """The checkout's own environment, and word that it is up to date: brought up to date from a copy, it would import
    the copy ever after."""
    (checkout / ".venv").mkdir()
    for part in (ROOT / ".venv").iterdir():
        if part.name != ".ready":
            (checkout / ".venv" / part.name).symlink_to(part)
    (checkout / ".venv" / ".ready").touch()
    # What the checkout has fetched for the emulator need not be fetched for each document.
    emulator_python(print)
    (checkout / VENV.name).symlink_to(VENV)
    libraries(print)
    (checkout / ".dynatick").mkdir()
    (checkout / ".dynatick" / CACHE.name).symlink_to(CACHE)


def _has_curl() -> bool:
    """Returns whether this machine's curl can sign requests."""
    if shutil.which("curl") is None:
        return False
    asked = subprocess.run(["curl", "--help", "all"], capture_output=True, text=True, timeout=300, check=False)
    return "--aws-sigv4" in asked.stdout and "--fail-with-body" in asked.stdout


def _environment(tmp_path: Path, checkout: Path) -> dict[str, str]:
    tools = tmp_path / "bin"
    tools.mkdir()
    # The AWS CLI, as far as documents use it, so that the tests need not install it; and curl, where it can't sign.
    stand_ins = {"aws": "aws_cli.py"} | ({} if _has_curl() else {"curl": "curl.py"})
    for name, source in stand_ins.items():
        tool = tools / name
        text = (Path(__file__).parent / source).read_text("utf-8")
        tool.write_text(f"#!{ROOT / '.venv' / 'bin' / 'python'}\n{text}", "utf-8")
        tool.chmod(0o755)
    return environment() | {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PORT": "0",  # a free one
        "DYNATICK_STATE_DIR": str(tmp_path / "state"),
        "PYTHONPATH": os.pathsep.join([str(checkout / "shared"), str(checkout / "stack")]),
        "MAKEFLAGS": "",
        "NUMBER": "5000",  # of tasks, where a document makes many
    }
