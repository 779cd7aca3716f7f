"""Builds for the emulator what `sam build` builds for Lambda: the layer and the functions' zips.

One difference, for speed: the emulator unpacks a layer anew for each worker process, which takes
seconds with thousands of files. So the layer's zip holds the dynatick package only; its libraries,
from the same lock, are installed once into a folder that the workers import from.
"""

import compileall
import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from py_compile import PycInvalidationMode

import dynatick
from dynatick_stack import template
from dynatick_stack.errors import BuildError
from dynatick_stack.files import digest, digest_of_files, exclusive, sources
from dynatick_stack.folders import CACHE
from dynatick_stack.venv import PIP, Say, interpreter_tag, python_with_pip, run_quietly

KEEP_SECONDS = 7 * 24 * 3600


def build(*, root: Path = template.ROOT, cache: Path = CACHE) -> dict[str, Path]:
    """Zips of all that the template names by a path, by logical id. Quick when nothing changed."""
    artifacts: dict[str, Path] = {}
    # One at a time: two sessions may share the cache.
    with exclusive(cache / "lock"):
        for name, resource in template.load(root / template.TEMPLATE.name)["Resources"].items():
            if resource["Type"] == template.FUNCTION:
                artifacts[name] = _function(name, root / resource["Properties"]["CodeUri"], cache)
            elif resource["Type"] == template.LAYER:
                artifacts[name] = _layer(name, package_of(root / resource["Properties"]["ContentUri"]), cache)
    return artifacts


def libraries(say: Say, *, root: Path = template.ROOT, cache: Path = CACHE) -> Path:
    """A folder with the layer's libraries, for the interpreter that the emulator runs on."""
    lock = root / "requirements" / "layer.txt"
    folder = cache / f"libraries-{digest(lock.read_bytes(), interpreter_tag())}"
    with exclusive(cache / "lock"):
        if not folder.exists():
            say("Installing the layer's libraries (once; about ten seconds)")
            discard_old(cache, "libraries")
            # Under its name only when it is whole: an interrupted one is not taken for ready.
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                target = Path(scratch, "whole")
                run_quietly(python_with_pip(say), *PIP, "--no-deps", "--target", target, "-r", lock)
                target.rename(folder)
        folder.touch()  # other projects, of other releases, discard what has not been used for days
    return folder


def _function(name: str, folder: Path, cache: Path) -> Path:
    if not (folder / "app.py").is_file():
        raise BuildError(f"{name}: there is no app.py in {folder}")
    zipped = cache / f"{name}-{digest_of_files(folder)}.zip"
    if not zipped.exists():
        discard_old(cache, name)
        with _new_zip(zipped) as archive:
            _add(archive, folder, sources(folder), "")
    return zipped


def package_of(folder: Path) -> Path:
    """The package of the layer: from a wheel, the installed one."""
    in_checkout = folder / "dynatick"
    return in_checkout if in_checkout.is_dir() else Path(dynatick.__file__).parent


def _layer(name: str, package: Path, cache: Path) -> Path:
    zipped = cache / f"{name}-{digest(digest_of_files(package), interpreter_tag())}.zip"
    if not zipped.exists():
        discard_old(cache, name)
        with tempfile.TemporaryDirectory(dir=cache) as scratch, _new_zip(zipped) as archive:
            copy = Path(scratch, "dynatick")
            shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
            # Unchecked: unpacking a zip gives files new times, and byte code is checked by time.
            compileall.compile_dir(copy, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
            files = [path for path in copy.rglob("*") if path.is_file()]
            _add(archive, copy, sorted(files), "python/dynatick/")
    return zipped


def _add(archive: zipfile.ZipFile, folder: Path, paths: list[Path], prefix: str) -> None:
    for path in paths:
        archive.write(path, prefix + path.relative_to(folder).as_posix())


@contextmanager
def _new_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip that appears under its name only when it is whole."""
    partial = path.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        yield archive
    partial.replace(path)


def discard_old(cache: Path, prefix: str) -> None:
    """Keep the cache small. Not at once: a stack that runs may still use an older one."""
    for path in cache.glob(f"{prefix}-*"):
        if time.time() - path.stat().st_mtime > KEEP_SECONDS:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
