"""Builds for the emulator what `sam build` builds for Lambda: the layer and the functions' zips.

One difference, for speed: the emulator unpacks a layer anew for each worker process, which takes
seconds with thousands of files. So the layer's zip holds the dynatick package only; its libraries,
from the same lock, are installed once into a folder that the workers import from.
"""

from functools import partial
from pathlib import Path

import dynatick
from dynatick_stack import template
from dynatick_stack.errors import BuildError
from dynatick_stack.files import (
    cached_folder,
    cached_zip,
    compile_sources,
    copy_sources,
    digest,
    digest_of_files,
    exclusive,
)
from dynatick_stack.folders import CACHE
from dynatick_stack.venv import HASHED, Say, interpreter_tag, pip_install


def build(*, root: Path = template.ROOT, cache: Path = CACHE) -> dict[str, Path]:
    """Zips of all that the template names by a path, by logical id. Quick when nothing changed."""
    body = template.load(root / template.TEMPLATE.name)
    artifacts: dict[str, Path] = {}
    # One at a time: two sessions may share the cache.
    with exclusive(cache / "lock"):
        for name, path in template.code_paths(body, template.FUNCTION).items():
            folder = root / path
            if not (folder / "app.py").is_file():
                raise BuildError(f"{name}: there is no app.py in {folder}")
            artifacts[name] = cached_zip(cache, name, digest_of_files(folder), partial(copy_sources, folder))
        for name, path in template.code_paths(body, template.LAYER).items():
            package = package_of(root / path)
            content = digest(digest_of_files(package), interpreter_tag())
            artifacts[name] = cached_zip(cache, name, content, partial(_layer, package))
    return artifacts


def libraries(say: Say, *, root: Path = template.ROOT, cache: Path = CACHE) -> Path:
    """A folder with the layer's libraries, for the interpreter that the emulator runs on."""
    lock = root / "requirements" / "layer.txt"

    def install(to: Path) -> None:
        say("Installing the layer's libraries (once; about ten seconds)")
        pip_install(say, to, *HASHED, "-r", lock)

    with exclusive(cache / "lock"):
        return cached_folder(cache, "libraries", digest(lock.read_bytes(), interpreter_tag()), install)


def package_of(folder: Path) -> Path:
    """The package of the layer: from a wheel, the installed one."""
    in_checkout = folder / "dynatick"
    return in_checkout if in_checkout.is_dir() else Path(dynatick.__file__).parent


def _layer(package: Path, to: Path) -> None:
    copy_sources(package, to / "python" / "dynatick")
    compile_sources(to)
