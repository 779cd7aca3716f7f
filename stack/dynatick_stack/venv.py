"""The emulator's own virtual environment: it pins versions of libraries that the layer doesn't."""

import importlib.util
import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

from dynatick_stack.errors import BuildError
from dynatick_stack.files import digest, exclusive
from dynatick_stack.folders import CACHE, IS_CHECKOUT, ROOT

LOCK = ROOT / "requirements" / "local.txt"

Say = Callable[[str], None]

HASHED = ("--require-hashes", "--no-deps")  # of a complete lock
_INSTALL = ("--disable-pip-version-check", "--quiet", "install")
_PIP = ("-m", "pip", *_INSTALL)
_PROGRAM = Path(__file__).with_name("pip_program.py")


def interpreter_tag() -> str:
    """Names the interpreter and platform that compiled code is for."""
    return f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"


# Projects of several interpreters and releases share the user's cache.
VENV = ROOT / ".venv-local" if IS_CHECKOUT else CACHE / f"emulator-{digest(LOCK.read_bytes(), interpreter_tag())}"


def run_quietly(*command: str | Path) -> None:
    """Run a command; show what it printed only if it failed."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shown = " ".join(str(part) for part in command[1:])
        raise BuildError(f"This failed: python {shown}\n{(done.stderr or done.stdout).strip()}")


def pip_install(say: Say, to: Path, *what: str | Path, markers: Mapping[str, str] | None = None) -> None:
    """Installs into a folder. ``markers``: their values there; None: it is for this interpreter. Raises BuildError."""
    pip = _PIP if markers is None else ("-P", _PROGRAM, json.dumps(markers), *_INSTALL)
    run_quietly(python_with_pip(say), *pip, "--target", to, *what)


def python_with_pip(say: Say) -> Path:
    """An interpreter of this version that has pip: this one, else the emulator's, as uv makes environments without."""
    return Path(sys.executable) if importlib.util.find_spec("pip") else emulator_python(say)


def emulator_python(say: Say, *, venv: Path = VENV, lock: Path = LOCK) -> Path:
    """The interpreter to run the emulator with, set up on first use and when the lock changes.

    It is the same interpreter as this one, so that a layer built here runs there.
    """
    python = venv / "bin" / "python"
    stamp = venv / ".ready"
    wanted = digest(lock.read_bytes(), interpreter_tag())
    with exclusive(CACHE / f"{venv.name}.lock"):
        if stamp.is_file() and stamp.read_text() == wanted and python.exists():
            return python
        say("Setting up the AWS emulator (once; about a quarter of a minute)")
        # Built anew: what an interrupted set-up left behind is not worth repairing.
        shutil.rmtree(venv, ignore_errors=True)
        run_quietly(sys.executable, "-m", "venv", venv)
        run_quietly(python, *_PIP, *HASHED, "-r", lock)
        stamp.write_text(wanted)
    return python
