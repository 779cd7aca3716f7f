"""Small helpers around files."""

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dynatick_stack.errors import BusyError


@contextmanager
def exclusive(path: Path, *, busy: str | None = None) -> Iterator[None]:
    """Hold a lock file. Waits until it is free, or refuses with `busy` if that is given.

    The system lets go of the lock when the process dies, so that none is ever left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
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
        parts += [str(path.relative_to(folder)), path.read_bytes()]
    return digest(*parts)
