"""Does what the release workflow does before it publishes (`make release-check`): builds, compares, installs, audits.

Each step is a line of the output. Every step runs even when one fails; ends with 1 if any did. What is to be published
lies in ``dist/`` then, with the bill of materials of what the Lambda layer brings. With ``--tag v1.2.3`` also the tag,
the version and the changelog must be of one release. ``--offline`` leaves out the audit, which asks PyPI.
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
SBOM = DIST / "dynatick-layer.cdx.json"
LAYER = ROOT / "requirements" / "layer.txt"
LOCKS = ("layer.txt", "dev.txt")
EPOCH = "1767225600"  # 2026-01-01: files in archives get this time, so that who builds them again gets the same bytes


class Fault(Exception):
    """What is wrong, in a sentence."""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Runs a command. Returns what it printed. Raises :class:`Fault` with the end of that, if it failed."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=900
    )
    if done.returncode:
        printed = (done.stdout + done.stderr).strip()
        raise Fault(f"{Path(command[0]).name} ended with {done.returncode}:\n{printed[-2000:]}")
    return done.stdout


def tool(name: str) -> Path:
    """A program beside this interpreter."""
    return Path(sys.executable).with_name(name)


def version() -> str:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def one_version(tag: str | None) -> str:
    """pyproject, package, changelog and tag name the same."""
    wanted = version()
    package = (ROOT / "shared" / "dynatick" / "__init__.py").read_text(encoding="utf-8")
    if f'__version__ = "{wanted}"' not in package:
        raise Fault(f"dynatick.__version__ is not {wanted}, as pyproject.toml has it")
    if tag is None:
        return f"{wanted}, in pyproject.toml and package"
    if tag != f"v{wanted}":
        raise Fault(f"the tag is {tag}; pyproject.toml wants v{wanted}")
    if not re.search(
        rf"^## {re.escape(wanted)} - \d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M
    ):
        raise Fault(f"CHANGELOG.md has no section '## {wanted} - <date>'")
    return f"{wanted}, in pyproject.toml, package, changelog and tag"


def archives() -> str:
    """Wheel and source archive, twice the same bytes; the source archive alone gives the same wheel."""
    DIST.mkdir(exist_ok=True)
    for path in [*DIST.glob("dynatick-*"), SBOM]:
        path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        again, unpacked = Path(folder) / "again", Path(folder) / "unpacked"
        for where in (DIST, again):
            run(sys.executable, "-m", "hatchling", "build", "--directory", where)
        built = {path.name: digest(path) for path in DIST.glob("dynatick-*")}
        if built != {path.name: digest(path) for path in again.iterdir()}:
            raise Fault("building twice gives different bytes")
        (source,) = DIST.glob("*.tar.gz")
        with tarfile.open(source) as archive:
            archive.extractall(unpacked, filter="data")
        (top,) = unpacked.iterdir()
        run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", unpacked / "dist", cwd=top)
        (wheel,) = (unpacked / "dist").iterdir()
        if digest(wheel) != built[wheel.name]:
            raise Fault("the wheel that is built from the source archive differs from the one of the checkout")
    return f"{', '.join(sorted(built))}: the same bytes each time, and the same wheel from the source archive"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def metadata() -> str:
    """What an index shows of them can be read there."""
    files = sorted(DIST.glob("dynatick-*[lz]"))
    run(tool("twine"), "check", "--strict", *files)
    (wheel,) = DIST.glob("*.whl")
    # W002: two packages have an empty __init__.py; W009: there are two packages at the top.
    run(tool("check-wheel-contents"), "--ignore", "W002,W009", wheel)
    return "description, licence and contents are well"


def installed() -> str:
    """The wheel works where nothing else is, with the locks of what it needs."""
    (wheel,) = DIST.glob("*.whl")
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "environment"
        run(sys.executable, "-m", "venv", environment)
        python = environment / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[cli]")
        said = run(environment / "bin" / "dynatick", "--version", cwd=Path(folder)).strip()
        if said != f"dynatick {version()}":
            raise Fault(f"the installed command says {said!r}")
        project = Path(folder) / "project"
        run(environment / "bin" / "dynatick", "init", project, cwd=Path(folder))
        run(environment / "bin" / "python", "-c", "import dynatick, dynatick.testing, dynatick_stack", cwd=project)
    return f"{said}, which begins a project"


def bill_of_materials() -> str:
    """What the layer brings, as CycloneDX."""
    run(tool("cyclonedx-py"), "requirements", LAYER, "--output-reproducible", "--output-file", SBOM)
    components = json.loads(SBOM.read_text(encoding="utf-8")).get("components", [])
    locked = re.findall(r"^([a-z0-9._-]+)==", LAYER.read_text(encoding="utf-8"), re.M)
    if sorted(one["name"] for one in components) != sorted(locked):
        raise Fault("its components are not those of requirements/layer.txt")
    return f"{SBOM.relative_to(ROOT)}, {len(components)} packages"


def audit() -> str:
    """No locked package has a published vulnerability."""
    for lock in LOCKS:
        run(tool("pip-audit"), "--strict", "--disable-pip", "--require-hashes", "--requirement", LAYER.with_name(lock))
    return f"no known vulnerability in {' and '.join(LOCKS)}"


def workflows() -> str:
    """Workflows and forms are what GitHub reads, and give no job more than it needs."""
    github = ROOT / ".github"
    files = sorted((github / "workflows").glob("*.yml"))
    forms = [path for path in sorted((github / "ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"]
    run(tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", *files)
    run(tool("check-jsonschema"), "--builtin-schema", "vendor.github-issue-forms", *forms)
    run(
        tool("check-jsonschema"),
        "--builtin-schema",
        "vendor.github-issue-config",
        github / "ISSUE_TEMPLATE" / "config.yml",
    )
    run(tool("check-jsonschema"), "--builtin-schema", "vendor.dependabot", github / "dependabot.yml")
    run(tool("zizmor"), "--offline", "--quiet", *files, github / "dependabot.yml")
    run(tool("pre-commit"), "validate-config", ROOT / ".pre-commit-config.yaml")
    return f"{len(files)} workflows, {len(forms)} forms"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", help="of the release, such as v1.2.3")
    parser.add_argument("--offline", action="store_true", help="leave out the audit")
    parser.add_argument("--only", help="one step alone")
    arguments = parser.parse_args()
    tag: str | None = arguments.tag
    steps: dict[str, Callable[[], str]] = {
        "version": lambda: one_version(tag),
        "archives": archives,
        "metadata": metadata,
        "installed": installed,
        "materials": bill_of_materials,
        "audit": audit,
        "workflows": workflows,
    }
    if arguments.offline:
        del steps["audit"]
        print("left out audit")
    if arguments.only is not None:
        if arguments.only not in steps:
            parser.error(f"--only: {arguments.only!r} is no step; the steps are {', '.join(steps)}")
        steps = {arguments.only: steps[arguments.only]}
    failed = 0
    for name, step in steps.items():
        try:
            print(f"ok      {name:10} {step()}", flush=True)
        except (Fault, subprocess.TimeoutExpired, ValueError, KeyError) as error:
            failed += 1
            print(f"failed  {name:10} {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
