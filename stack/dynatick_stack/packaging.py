"""Builds what goes to AWS: zips of the functions, of the layer with its libraries, and of the project's handlers.

The libraries are wheels for Lambda's platform, so neither its processor nor its Python need be here. The same content
gives the same zip, and its name tells the content: what has not changed is not uploaded again.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dynatick_stack import template
from dynatick_stack.build import package_of
from dynatick_stack.errors import BuildError, RefusedError
from dynatick_stack.files import (
    cached_folder,
    cached_zip,
    compile_sources,
    copy,
    copy_sources,
    digest,
    digest_of_files,
    exclusive,
    rights,
    sources,
)
from dynatick_stack.folders import CACHE
from dynatick_stack.limits import check_environment, check_quotas
from dynatick_stack.project import Project
from dynatick_stack.project_files import kept_here
from dynatick_stack.requirements_file import read_requirements
from dynatick_stack.transform import transformed
from dynatick_stack.venv import HASHED, Say, pip_install

MAX_UNPACKED_BYTES = 250 * 1024 * 1024
"""The limit for a function with its layers (Lambda quotas)."""

LOCK = template.ROOT / "requirements" / "layer.txt"
MACHINES = {"arm64": "aarch64", "x86_64": "x86_64"}
_GLIBC = (34, 28, 17)  # that of Lambda's Linux, and older ones whose wheels run there
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)
_MAX_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class Packages:
    """The zips. ``of_template``: by the logical ids of what the template names by a path."""

    of_template: Mapping[str, Path]
    handlers: Path
    payload_schemas: Mapping[str, str] = field(default_factory=dict)  # of the handlers, as JSON text, by action


@dataclass(frozen=True, kw_only=True)
class Platform:
    """What the functions run on."""

    architecture: str  # arm64 or x86_64
    python: str  # such as 3.13

    @classmethod
    def of(cls, architecture: str) -> Platform:
        runtime = str(template.load()["Globals"]["Function"]["Runtime"])
        return cls(architecture=architecture, python=runtime.removeprefix("python"))

    @property
    def options(self) -> list[str]:
        """The options of pip: wheels for this platform, and nothing that would have to be built."""
        machine = MACHINES[self.architecture]
        names = [*(f"manylinux_2_{minor}_{machine}" for minor in _GLIBC), f"manylinux2014_{machine}"]
        platforms = [part for name in names for part in ("--platform", name)]
        return ["--only-binary=:all:", "--implementation", "cp", "--python-version", self.python, *platforms]

    @property
    def markers(self) -> dict[str, str]:
        """What requirements may depend on."""
        full = f"{self.python}.0"  # or a later one
        return {
            "implementation_name": "cpython", "implementation_version": full, "os_name": "posix",
            "platform_machine": MACHINES[self.architecture], "platform_python_implementation": "CPython",
            "platform_system": "Linux", "python_full_version": full, "python_version": self.python,
            "sys_platform": "linux",
        }  # fmt: skip

    @property
    def content(self) -> list[str]:
        """What decides which libraries are fetched for the same requirements."""
        return [*self.options, *self.markers.values()]

    @property
    def is_of_this_interpreter(self) -> bool:
        """Whether byte code that is compiled here is good there."""
        return self.python == "{}.{}".format(*sys.version_info)


def build_packages(
    project: Project, files: Sequence[Path], platform: Platform, *, say: Say, cache: Path = CACHE
) -> Packages:
    """All that a project deploys, with these files of its folder. Raises BuildError."""
    body, of_template = template.load(), dict[str, Path]()
    with exclusive(cache / "lock"):
        libraries = _layer_libraries(platform, say, cache)
        for name, path in template.code_paths(body, template.FUNCTION).items():
            folder = template.ROOT / path
            # Our handlers are a sample, and would hide a project's module of this name.
            copied = partial(copy_sources, folder, without="handlers.py")
            of_template[name] = cached_zip(cache, f"aws-{name}", digest_of_files(folder), copied)
        for name, path in template.code_paths(body, template.LAYER).items():
            package = package_of(template.ROOT / path)
            content = digest(libraries.name, digest_of_files(package))
            layer = partial(_layer, libraries, package, platform)
            of_template[name] = cached_zip(cache, f"aws-{name}", content, layer)
        handlers = _handlers(project, files, platform, libraries, say, cache)
    sizes = {path.name: _size(path) for path in (handlers, *of_template.values())}
    _check_size(sizes, "Code and libraries")
    own, total = _megabytes(sizes[handlers.name]), _megabytes(sum(sizes.values()))
    say(f"Unpacked they take {own} MB with what they require, {total} with Dynatick's code; Lambda allows 250")
    return Packages(of_template=of_template, handlers=handlers)


def _check_size(sizes: Mapping[str, int], what: str) -> None:
    """Checks the sizes of files, by their names. Raises BuildError, which names the largest."""
    total = sum(sizes.values())
    if total > MAX_UNPACKED_BYTES:
        largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:3]
        named = ", ".join(f"{name} ({_megabytes(sizes[name])} MB)" for name in largest)
        raise BuildError(
            f"{what} take {_megabytes(total)} MB unpacked; Lambda allows a function 250 with its layers. "
            f"The largest: {named}"
        )


def _megabytes(number: int) -> str:
    return f"{number / 2**20:.1f}"


def named(names: Sequence[str]) -> str:
    """The first of these names."""
    return ", ".join([*names[:_MAX_NAMED], *(["…"] if len(names) > _MAX_NAMED else [])])


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _layer(libraries: Path, package: Path, platform: Platform, to: Path) -> None:
    shutil.copytree(libraries, to / "python")
    copy_sources(package, to / "python" / "dynatick")
    if platform.is_of_this_interpreter:
        compile_sources(to)


def _handlers(
    project: Project, paths: Sequence[Path], platform: Platform, libraries: Path, say: Say, cache: Path
) -> Path:
    files = {path.relative_to(project.folder).as_posix(): path for path in paths}
    _check_size({name: path.stat().st_size for name, path in files.items()}, "The handlers' files")
    others = sorted(name for name in files if not name.endswith(".py"))
    say(
        f"Handlers: {counted(len(files), 'file')}"
        + (f", {len(others)} of them not Python: {named(others)}" if others else "")
    )
    if kept := sorted(path.relative_to(project.folder).as_posix() for path in kept_here(project)):
        say(f"Not packaged, since they may be secret: {named(kept)}. A certificate to trust can end in .crt instead")
    content = [part for name, path in sorted(files.items()) for part in (name, f"{rights(path):o}", path.read_bytes())]
    needed: Path | None = None
    if project.requirements is not None:
        needed = _their_libraries(project.requirements, platform, libraries, say, cache)
        content.append(needed.name)

    def build(to: Path) -> None:
        (to / "python").mkdir()
        if needed is not None:
            shutil.copytree(needed, to / "python", dirs_exist_ok=True)
        for name, path in files.items():
            copy(path, to / "python" / name)

    return cached_zip(cache, "aws-Handlers", digest(*content), build)


def _layer_libraries(platform: Platform, say: Say, cache: Path) -> Path:
    def install(to: Path) -> None:
        say(f"Fetching the layer's libraries for Python {platform.python} on {platform.architecture} (once)")
        _pip(to, platform, say, *HASHED, "-r", LOCK)

    return cached_folder(cache, "lambda-layer", digest(LOCK.read_bytes(), *platform.content), install)


def _their_libraries(requirements: Path, platform: Platform, libraries: Path, say: Say, cache: Path) -> Path:
    """What the handlers need beside the layer. Both end up in one folder there, so versions must agree."""
    found = read_requirements(requirements)
    wanted, own = "\n".join(found.wanted), "\n".join(found.constraints)
    pins = "\n".join(f"{name}=={version}" for name, version in _PINNED.findall(LOCK.read_text(encoding="utf-8")))

    def install(to: Path) -> None:
        say(f"Fetching the handlers' libraries for Python {platform.python} on {platform.architecture}")
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            given, constraints = Path(scratch, requirements.name), Path(scratch, "of-the-layer.txt")
            given.write_text(wanted, encoding="utf-8")
            constraints.write_text(f"{pins}\n{own}", encoding="utf-8")
            has_hashes = "--hash=" in wanted  # a lock: it has all of them, and each version
            _pip(to, platform, say, *(("--no-deps",) if has_hashes else ("-c", constraints)), "-r", given)
        for path in sources(to):
            if (libraries / path.relative_to(to)).is_file():
                path.unlink()

    return cached_folder(cache, "lambda-handlers", digest(*found.content, pins, *platform.content), install)


def _pip(to: Path, platform: Platform, say: Say, *what: str | Path) -> None:
    pip_install(say, to, "--no-compile", *platform.options, *what, markers=platform.markers)
    shutil.rmtree(to / "bin", ignore_errors=True)


def _size(path: Path) -> int:
    with zipfile.ZipFile(path) as archive:
        return sum(entry.file_size for entry in archive.infolist())


def checked_parameters(project: Project) -> dict[str, str]:
    """All that a new stack would have, but for the layer of the handlers. Raises RefusedError for those that AWS would
    refuse, or that stop every task."""
    parameters, body = project.template_parameters(), template.load()
    template.check_parameters(parameters, body)
    values = {**template.defaults(), **parameters}
    template.check_rules(values, body)
    check_quotas(parameters, project.table_write_units)
    check_environment(values, body, project.name)
    return values


def write_folder(
    project: Project, files: Sequence[Path], to: Path, *, is_transformed: bool = False, say: Say, cache: Path = CACHE
) -> None:
    """Writes what a pipeline of one's own needs: template.json, the zips that it names beside it, handlers.zip for a
    layer, and parameters.json, which lacks that layer's ARN. ``is_transformed``: the template has no SAM transform any
    more. Raises BuildError, and RefusedError for what can't be a folder, and for parameters that AWS would refuse."""
    values = checked_parameters(project)
    try:
        to.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RefusedError(f"{to} can't be a folder: {error.strerror}") from None
    parameters = project.template_parameters()
    packages = build_packages(project, files, Platform.of(values["Architecture"]), say=say, cache=cache)
    body, code = template.load(), {name: f"{name}.zip" for name in packages.of_template}
    for name, path in packages.of_template.items():
        shutil.copyfile(path, to / code[name])
        template.set_code(body, name, code[name])
    if is_transformed:
        body = transformed(body, code, say=say)
    shutil.copyfile(packages.handlers, to / "handlers.zip")
    pairs = [{"ParameterKey": name, "ParameterValue": value} for name, value in sorted(parameters.items())]
    (to / "template.json").write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    (to / "parameters.json").write_text(json.dumps(pairs, indent=1) + "\n", encoding="utf-8")
