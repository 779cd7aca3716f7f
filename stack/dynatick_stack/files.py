"""Files: locks, digests, and what is built once and kept in the cache."""

from __future__ import annotations

import compileall
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import IO

from dynatick_stack.errors import BusyError, StackError

KEEP_SECONDS = 7 * 24 * 3600
_FIRST_TIME = (1980, 1, 1, 0, 0, 0)  # a zip has no earlier one


@contextmanager
def exclusive(path: Path, *, busy: str | None = None) -> Iterator[None]:
    """Hold a lock file. Waits until it is free, or refuses with `busy` if that is given. Raises
    StackError where none can be written, such as below a home that is read-only.

    The system lets go of the lock when the process dies, so that none is ever left behind.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = path.open("a")
    except OSError as error:
        raise StackError(f"{path} can't be written: {error.strerror}") from None
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            raise BusyError(busy) from None
        yield


def sources(folder: Path) -> list[Path]:
    """The files of a folder that belong into a package, in a stable order."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    )


def copy_sources(folder: Path, to: Path, *, without: str = "") -> None:
    """Copies the sources of a folder, but files of the name ``without``."""
    for path in sources(folder):
        if path.name != without:
            copy(path, to / path.relative_to(folder))


def copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, to)  # with its rights: a program stays one


def compile_sources(folder: Path) -> None:
    """Adds byte code for this interpreter to what will be unpacked as a layer: it is read-only there, so that each cold
    start would compile anew. Unchecked, for byte code is checked by time, and unpacking gives files new times."""
    compileall.compile_dir(
        folder, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH, stripdir=str(folder), prependdir="/opt"
    )


def digest(*parts: bytes | str) -> str:
    """A short name for content: same parts, same name."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big"))
        total.update(data)
    return total.hexdigest()[:16]


def digest_of_files(folder: Path) -> str:
    parts: list[bytes | str] = []
    for path in sources(folder):
        parts += [str(path.relative_to(folder)), f"{rights(path):o}", path.read_bytes()]
    return digest(*parts)


def write_zip(to: Path | IO[bytes], files: Mapping[str, Path]) -> None:
    """A zip of files by their names in it, without times: the same for the same content, on every machine."""
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _FIRST_TIME)
            entry.external_attr = rights(path) << 16
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


def rights(path: Path) -> int:
    """Of a file in a package: everybody may read it, and execute what its owner may."""
    return 0o755 if path.stat().st_mode & 0o100 else 0o644


def cached_folder(cache: Path, name: str, content: str, build: Callable[[Path], None]) -> Path:
    """A folder with what ``build`` puts there, made once for each content."""

    def build_folder(to: Path) -> None:
        to.mkdir()
        build(to)

    return _cached(cache, name, content, build_folder)


def cached_zip(cache: Path, name: str, content: str, build: Callable[[Path], None]) -> Path:
    """A zip of what ``build`` puts into a folder, made once for each content."""

    def build_zip(to: Path) -> None:
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            build(Path(scratch))
            files = [path for path in Path(scratch).rglob("*") if path.is_file()]
            write_zip(to, {path.relative_to(scratch).as_posix(): path for path in files})

    return _cached(cache, name, f"{content}.zip", build_zip)


def _cached(cache: Path, name: str, content: str, build: Callable[[Path], None]) -> Path:
    path = cache / f"{name}-{content}"
    cache.chmod(0o700)  # it holds the handlers' code
    if not path.exists():
        _discard_old(cache, name)
        # Under its name only when it is whole: an interrupted one is not taken for ready.
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            whole = Path(scratch, "whole")
            build(whole)
            if whole.is_file():
                whole.chmod(0o600)
            whole.rename(path)
    os.utime(path)  # other projects, of other releases, discard what has not been used for days
    return path


def _discard_old(cache: Path, name: str) -> None:
    """Keeps the cache small. Not at once: a stack that runs may still use an older one."""
    for path in cache.glob(f"{name}-*"):
        if time.time() - path.stat().st_mtime > KEEP_SECONDS:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
