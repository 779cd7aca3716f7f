"""What is checked before a release, and the workflows that publish it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import release_check
from tests.release_check import Fault

WORKFLOWS = sorted((release_check.ROOT / ".github" / "workflows").glob("*.yml"))


def test_a_tag_names_the_version_and_the_changelog_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert release_check.one_version(None).startswith(release_check.version())
    with pytest.raises(Fault, match=r"the tag is v9\.9\.9; pyproject\.toml wants v"):
        release_check.one_version("v9.9.9")
    package = tmp_path / "shared" / "dynatick"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("## Unreleased\n")
    monkeypatch.setattr(release_check, "ROOT", tmp_path)
    with pytest.raises(Fault, match=r"has no section '## 1\.2\.3 - <date>'"):
        release_check.one_version("v1.2.3")
    (tmp_path / "CHANGELOG.md").write_text("## Unreleased\n\n## 1.2.3 - 2026-11-27\n")
    assert release_check.one_version("v1.2.3") == "1.2.3, in pyproject.toml, package, changelog and tag"
    (package / "__init__.py").write_text('__version__ = "1.2.2"\n')
    with pytest.raises(Fault, match=r"is not 1\.2\.3"):
        release_check.one_version("v1.2.3")


def test_a_command_that_fails_says_what_it_printed() -> None:
    with pytest.raises(Fault, match=r"(?s)ended with 3:.*not today"):
        release_check.run(sys.executable, "-c", "print('not today'); raise SystemExit(3)")


def test_it_ends_with_1_when_a_step_failed() -> None:
    command = [sys.executable, "-m", "tests.release_check", "--tag", "v0", "--offline", "--only", "version"]
    done = subprocess.run(command, cwd=release_check.ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout.splitlines()[-1].startswith("failed  version"), done.stdout


def jobs() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{path.stem}: {name}", job)
        for path in WORKFLOWS
        for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items()
    ]


def test_actions_are_named_by_commit_and_no_secret_is() -> None:
    used = [step["uses"] for _, job in jobs() for step in job["steps"] if "uses" in step]
    assert used and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name) for name in used), used
    assert not [path for path in WORKFLOWS if "secrets." in path.read_text(encoding="utf-8")]


def test_only_who_attests_or_publishes_gets_an_identity_and_runs_nothing_of_ours() -> None:
    trusted = {name: job for name, job in jobs() if "id-token" in job.get("permissions", {})}
    assert set(trusted) == {"release: attest", "release: publish"}
    for job in trusted.values():
        assert not [
            step for step in job["steps"] if "checkout" in step.get("uses", "") or "make" in step.get("run", "")
        ]


def test_what_is_published_was_tested_and_checked() -> None:
    release = dict(jobs())
    assert release["release: publish"]["needs"] == "attest" and release["release: attest"]["needs"] == "build"
    said = [step.get("run", "") for step in release["release: build"]["steps"]]
    assert ".ci/run" in said and any(line.startswith("make release-check TAG=") for line in said)
