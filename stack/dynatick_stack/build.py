"""Builds for the emulator what `sam build` builds for Lambda: the layer and the functions' zips.

The emulator runs functions on its own interpreter, so the layer's libraries are fetched for that
one. They are the slow part and change with their lock only, so they are kept apart.
"""

import compileall
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from py_compile import PycInvalidationMode

from dynatick_stack import template
from dynatick_stack.errors import BuildError
from dynatick_stack.files import digest, digest_of_files, exclusive, sources
from dynatick_stack.venv import PIP, Say, interpreter_tag, run_quietly

CACHE = template.ROOT / ".dynatick" / "cache"

FUNCTION = "AWS::Serverless::Function"
LAYER = "AWS::Serverless::LayerVersion"


def build(say: Say, *, root: Path = template.ROOT, cache: Path = CACHE) -> dict[str, Path]:
    """Zips of all that the template names by a path, by logical id. Quick when nothing changed."""
    artifacts: dict[str, Path] = {}
    # One at a time: two sessions may share the cache.
    with exclusive(cache / "lock"):
        for name, resource in template.load(root / template.TEMPLATE.name)["Resources"].items():
            if resource["Type"] == FUNCTION:
                folder = root / resource["Properties"]["CodeUri"]
                artifacts[name] = _function(name, folder, cache)
            elif resource["Type"] == LAYER:
                folder = root / resource["Properties"]["ContentUri"]
                lock = root / "requirements" / "layer.txt"
                artifacts[name] = _layer(name, folder, lock, cache, say)
    return artifacts


def _function(name: str, folder: Path, cache: Path) -> Path:
    if not (folder / "app.py").is_file():
        raise BuildError(f"{name}: there is no app.py in {folder}")
    zipped = cache / f"{name}-{digest_of_files(folder)}.zip"
    if not zipped.exists():
        _discard_old(cache, name)
        with _new_zip(zipped) as archive:
            for path in sources(folder):
                archive.write(path, path.relative_to(folder).as_posix())
    return zipped


def _layer(name: str, folder: Path, lock: Path, cache: Path, say: Say) -> Path:
    package = folder / "dynatick"
    libraries = _libraries(lock, cache, say)
    zipped = cache / f"{name}-{digest(libraries.name, digest_of_files(package))}.zip"
    if zipped.exists():
        return zipped
    _discard_old(cache, name)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        copy = Path(scratch, "dynatick")
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        _compile(copy)
        whole = Path(scratch, zipped.name)
        shutil.copyfile(libraries, whole)
        with zipfile.ZipFile(whole, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            _add(archive, copy, "python/dynatick/")
        whole.rename(zipped)
    return zipped


def _libraries(lock: Path, cache: Path, say: Say) -> Path:
    """The third-party part of the layer, zipped with its byte code."""
    zipped = cache / f"libraries-{digest(lock.read_bytes(), interpreter_tag())}.zip"
    if zipped.exists():
        return zipped
    say("Building the layer's libraries (once; about ten seconds)")
    _discard_old(cache, "libraries")
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        target = Path(scratch, "python")
        run_quietly(sys.executable, *PIP, "--no-deps", "--no-compile", "--target", target, "-r", lock)
        shutil.rmtree(target / "bin", ignore_errors=True)
        _compile(target)
        with _new_zip(zipped) as archive:
            _add(archive, target, "python/")
    return zipped


def _compile(folder: Path) -> None:
    # Unchecked: unpacking a zip gives files new times, and byte code is checked by time.
    compileall.compile_dir(folder, quiet=2, workers=0, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)


def _add(archive: zipfile.ZipFile, folder: Path, prefix: str) -> None:
    """Add a compiled folder: sources and byte code."""
    for path in [*sources(folder), *sorted(folder.rglob("__pycache__/*.pyc"))]:
        archive.write(path, prefix + path.relative_to(folder).as_posix())


@contextmanager
def _new_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip that appears under its name only when it is whole."""
    partial = path.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        yield archive
    partial.replace(path)


def _discard_old(cache: Path, prefix: str) -> None:
    """Keep the cache small. Not at once: another session may be about to upload one of them."""
    for path in cache.glob(f"{prefix}-*"):
        if time.time() - path.stat().st_mtime > 24 * 3600:
            path.unlink()
