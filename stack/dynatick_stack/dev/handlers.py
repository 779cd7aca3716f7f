"""A project's handlers: checked, installed with their requirements, and published as a layer."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dynatick
from dynatick.json_reader import parse
from dynatick_stack import template
from dynatick_stack.deploy import REGION
from dynatick_stack.dev import sources
from dynatick_stack.dev.sources import Snapshot
from dynatick_stack.errors import StackError
from dynatick_stack.files import cached_folder, digest, exclusive
from dynatick_stack.folders import CACHE
from dynatick_stack.local import LocalStack
from dynatick_stack.project import Project
from dynatick_stack.project_files import TAKEN
from dynatick_stack.requirements_file import read_requirements
from dynatick_stack.venv import Say, interpreter_tag, pip_install

CHECK_SECONDS = 60.0
_PROGRAM = Path(__file__).with_name("check_handlers.py")
_SCHEDULER = template.ROOT / "functions" / "scheduler"


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What a module of handlers has."""

    actions: Mapping[str, str | None]  # by name, with the JSON Schema of its payload, if it has one
    schedules: Sequence[Mapping[str, object]]  # that its functions declare: rows under the table's names
    known: Sequence[str] = ()  # all actions that the template's parameters allow, as far as these are given


class HandlersError(StackError):
    """The project's handlers can't be imported, or are none."""

    exit_code = 3


def requirements(project: Project, say: Say) -> Path | None:
    """A folder with what the handlers require, installed for this interpreter; None if they require nothing."""
    if project.requirements is None:
        return None
    file = project.requirements

    def install(to: Path) -> None:
        say(f"Installing {file.name} (once)")
        pip_install(say, to, "-r", file)

    found = read_requirements(file)
    content = digest(file.read_bytes(), *found.content, interpreter_tag())
    with exclusive(CACHE / "lock"):
        return cached_folder(CACHE, "handlers", content, install)


def local_secrets(project: Project) -> dict[str, str]:
    """The values that the project's secrets have on this machine: those of environment variables. Raises HandlersError,
    which names those that are missing."""
    values = {name: os.environ.get(name, "") for name in project.secrets}
    if missing := ", ".join(name for name, value in values.items() if not value):
        raise HandlersError(
            f"Not set: {missing}. dynatick.toml names such secrets ([handlers] secrets); on this machine their values "
            "are those of environment variables of the same name"
        )
    return values


def check(
    project: Project,
    files: Iterable[Path],
    libraries: Path,
    required: Path | None,
    environment: Mapping[str, str],
    parameters: Mapping[str, str] | None = None,
) -> Checked:
    """The actions and the schedules of the module. Raises HandlersError with the line of the project that is to blame,
    and for what else the processor and the scheduler refuse of the template's parameters; None: they are not known.

    The module gets what it has in Lambda: these files of its own, the layer's libraries, and what it requires.
    """
    variables = template.variables({} if parameters is None else parameters)
    with tempfile.TemporaryDirectory() as scratch:
        own, package = Path(scratch, "own"), Path(scratch, "package")
        for file in files:
            link = own / file.relative_to(project.folder)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file)
        package.mkdir()
        (package / "dynatick").symlink_to(Path(dynatick.__file__).parent)
        path = [own, package, libraries, *([required] if required else [])]
        try:
            # -S: without the packages of this environment. -P: without the folder of the program.
            ran = subprocess.run(
                [
                    sys.executable,
                    "-S",
                    "-P",
                    "-B",
                    str(_PROGRAM),
                    project.module,
                    str(own),
                    str(_SCHEDULER),
                    *environment,
                ],
                env={**_of_lambda(environment), **variables, "PYTHONPATH": os.pathsep.join(map(str, path))},
                capture_output=True,
                text=True,
                timeout=CHECK_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise HandlersError(f"{project.module} takes longer than {CHECK_SECONDS:.0f} s to import") from None
    if ran.returncode != 0:
        raise HandlersError(f"{project.module} ends the process that imports it: {_last_line(ran.stderr)}")
    found: Any = parse(ran.stdout)
    if "problem" in found:
        place = f"{found['place']}  " if found["place"] else ""
        is_taken = f"No module named '{TAKEN}'" in found["problem"] or project.module.partition(".")[0] == TAKEN
        why = f"; a module {TAKEN} is in the functions already, so yours needs another name" if is_taken else ""
        raise HandlersError(f"{place}{found['problem']}{why}")
    actions: dict[str, str | None] = found["actions"]
    if not actions:
        raise HandlersError(f"{project.module} has no function that is declared by @task")
    return Checked(actions=actions, schedules=found["schedules"], known=found["known"])


def store_secrets(stack: LocalStack, project: Project, values: Mapping[str, str]) -> dict[str, str]:
    """Puts secrets where the processor reads them. Returns the parameters that refer to them."""
    references = {name: f"ssm:/{project.name}/{name}" for name in values}
    for name, value in values.items():
        stack.client("ssm").put_parameter(
            Name=f"/{project.name}/{name}", Value=value, Type="SecureString", Overwrite=True
        )
    parameters = replace(project, secrets=references).template_parameters()
    return {name: parameters[name] for name in ("HandlersSecrets", "HandlersSecretArns")}


def publish(stack: LocalStack, project: Project, files: Snapshot) -> str:
    """The ARN of a new version of the layer with the project's files."""
    content = {"ZipFile": sources.layer(project.folder, files)}
    answer: Mapping[str, Any] = stack.client("lambda").publish_layer_version(
        LayerName=f"{project.name}-handlers", Content=content
    )
    return str(answer["LayerVersionArn"])


def _of_lambda(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a module finds there while it is imported."""
    return {
        **environment,
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it says nothing"
