"""Starts and stops the AWS emulator (MiniStack) that the local stack runs on.

One emulator per state folder. Each start is fresh: the emulator can't take up a stream where it
left off, so what an earlier start held is dropped, and said to be.
"""

import http.client
import json
import os
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from dynatick.ui import loopback
from dynatick_stack import processes
from dynatick_stack.errors import BusyError, NotRunningError, RefusedError, StackError
from dynatick_stack.folders import STATE
from dynatick_stack.interruptions import begin_to_clean_up, uninterrupted
from dynatick_stack.venv import Say, emulator_python

HOST = loopback.HOST
PORT = 4566
STACK = "dynatick"
MARKER = "dynatick-local-stack"  # a file that says whose the folder is
LIBRARIES, HANDLERS_LIBRARIES = "libraries", "handlers-libraries"  # folders that the functions import from
TRIES = 5  # of ports, before the last one
READY_SECONDS = 120.0  # It takes some; on a busy machine many.
PROGRAM = Path(__file__).with_name("emulator_program.py")
RECORDING = "DYNATICK_LOCAL_RECORDING"  # environment variable: a file to record requests and invocations in


@dataclass(frozen=True, kw_only=True)
class Emulator:
    pid: int
    port: int
    stack: str = STACK  # what is deployed, or will be

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"


def start(port: int | None, *, state_dir: Path = STATE, say: Say, stack: str = STACK) -> Emulator:
    """Start afresh on this port; returns when the emulator answers. 0: on a free one, and on another if a program takes
    that meanwhile. None: on the usual one, or on a free one if another program has that, or takes it meanwhile."""
    if not port:
        chosen = PORT if port is None else _free_port()
        for _ in range(TRIES):
            try:
                return start(chosen, state_dir=state_dir, say=say, stack=stack)
            except BusyError:
                chosen = _free_port()
        return start(chosen, state_dir=state_dir, say=say, stack=stack)
    python, recording = emulator_python(say), _recording()
    # Before anything is stopped: what runs shall go on if there's no port for the new one.
    check_port(port, state_dir=state_dir)
    earlier = _recorded(state_dir)
    if processes.stop(state_dir):
        where = f" on port {earlier.port}" if earlier else ""
        say(f"Stopped the local stack that ran{where}: each start is fresh, what it held is gone")
    elif earlier:
        say("Cleared away what an earlier start left behind")
    _clear(state_dir)
    if state_dir.is_dir() and any(state_dir.iterdir()):
        raise RefusedError(
            f"{state_dir} holds other files. Choose an empty folder, or one that isn't there: --state-dir"
        )
    refuse_busy_port(port)

    process: subprocess.Popen[bytes] | None = None
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        (state_dir / MARKER).touch()
        processes.worker_folder(state_dir).mkdir()
        log = state_dir / "emulator.log"
        # Interruptions are put off until the process is known: it could not be found to be ended.
        with log.open("wb") as output, uninterrupted():
            process = subprocess.Popen(
                # -E: the functions' PYTHONPATH is not for the emulator, which has other versions; -P: nor our modules.
                [python, "-EP", "-X", processes.marker(state_dir), PROGRAM, loopback.__file__, *recording],
                cwd=state_dir,
                env=_environment(port, state_dir),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Its own group, so that Ctrl-C reaches us first and we end it in order.
                start_new_session=True,
            )
        found = Emulator(pid=process.pid, port=port, stack=stack)
        (state_dir / "state.json").write_text(json.dumps(asdict(found)))
        _wait_until_ready(process, found, log)
    except BaseException:
        if process is not None:
            # By its number: for a moment after its start it has no command line to be found by.
            process.kill()
            process.wait()
        stop(state_dir=state_dir)
        raise
    return found


def provide(libraries: Path, *, state_dir: Path = STATE, name: str = LIBRARIES) -> None:
    """Let functions that start from now on import from this folder, before the emulator's own libraries; from those of
    the handlers after those of the layer."""
    link = state_dir / name
    fresh = link.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(libraries)
    fresh.replace(link)


def stop(*, state_dir: Path = STATE) -> bool:
    """End the emulator and all that it started; true if anything ran."""
    begin_to_clean_up()
    ran = processes.stop(state_dir)
    _clear(state_dir)
    return ran


def _clear(state_dir: Path) -> None:
    """Deletes what a local stack has made there, and the folder if it is empty then. Without the marker, nothing."""
    if not (state_dir / MARKER).is_file() and _recorded(state_dir) is None:
        return
    shutil.rmtree(processes.worker_folder(state_dir), ignore_errors=True)
    for name in (LIBRARIES, HANDLERS_LIBRARIES):
        for link in (state_dir / name, (state_dir / name).with_suffix(".new")):
            link.unlink(missing_ok=True)
    for name in ("emulator.log", "state.json", MARKER):
        (state_dir / name).unlink(missing_ok=True)
    with suppress(OSError):
        state_dir.rmdir()


def current(*, state_dir: Path = STATE) -> Emulator:
    """The emulator that runs in this folder."""
    recorded = _recorded(state_dir)
    if recorded is None or processes.emulator(state_dir) is None:
        raise NotRunningError(
            "The local stack isn't running. Start it: dynatick dev in your project, or make up in a clone"
        )
    return recorded


def _free_port() -> int:
    """A port that is free now; another program may take it before ours does."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def check_port(port: int, *, state_dir: Path = STATE) -> None:
    """Refuse a port that another program has. One that our own emulator has, or may have, will be free."""
    earlier = _recorded(state_dir)
    # One that runs and isn't recorded was begun by a process that was killed; it may have any port.
    is_ours = processes.emulator(state_dir) is not None and (earlier is None or earlier.port == port)
    if not is_ours:
        refuse_busy_port(port)


def refuse_busy_port(port: int, *, instead: str | None = None) -> None:
    """``instead``: how to choose another one, for the message."""
    instead = instead or f"make up PORT={port + 1}, or dynatick local up --port {port + 1}"
    with socket.socket() as probe:
        # As servers do: a port whose last connections just closed is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except PermissionError:
            raise BusyError(f"Port {port} needs a privilege. Choose one above 1023: make up PORT=4567") from None
        except OSError:
            raise BusyError(f"Port {port} is in use by another program. Choose another: {instead}") from None


def _environment(port: int, state_dir: Path) -> dict[str, str]:
    # The emulator hands its whole environment on to the functions, so it gets nothing of ours:
    # neither credentials nor settings that a function on Lambda wouldn't have.
    scratch = processes.worker_folder(state_dir)
    return {
        "PATH": os.defpath,
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(str(state_dir / name) for name in (LIBRARIES, HANDLERS_LIBRARIES)),
        "GATEWAY_PORT": str(port),
        "BIND_HOST": HOST,
        "MINISTACK_HOST": HOST,
        # Doors that would open beside the gateway.
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        # Functions run as processes; it need not search for Docker.
        "LAMBDA_EXECUTOR": "local",
        "DOCKER_HOST": f"unix://{scratch}/no-docker",
        "STATE_DIR": str(scratch / "state"),
        "S3_DATA_DIR": str(scratch / "s3"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def _recording() -> list[str | Path]:
    """The arguments of the program, if what happens is to be recorded. Raises RefusedError."""
    given = os.environ.get(RECORDING)
    if not given:
        return []
    path = Path(given).resolve()
    if path.is_dir() or not path.parent.is_dir():
        raise RefusedError(f"{RECORDING} is {given}; expected a file in a folder that is there")
    return [Path(__file__).with_name("emulator_recording.py"), path]


def _wait_until_ready(process: subprocess.Popen[bytes], emulator: Emulator, log: Path) -> None:
    end = time.monotonic() + READY_SECONDS
    while process.poll() is None:
        # Its log tells it from another program that answers, if both started at the same moment.
        if "Running on " in log.read_text(errors="replace") and _answers(emulator.port):
            return
        if time.monotonic() > end:
            raise StackError(f"The emulator isn't ready after {READY_SECONDS:.0f} s.\n{_tail(log)}")
        time.sleep(0.05)
    refuse_busy_port(emulator.port)
    ended = _tail(log)
    if "already in use" in ended:  # for a moment, as by a connection
        raise BusyError(f"Port {emulator.port} was in use by another program. Try again, or choose another")
    raise StackError(f"The emulator ended at once. Its log:\n{ended}")


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", "/_ministack/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _recorded(state_dir: Path) -> Emulator | None:
    try:
        return Emulator(**json.loads((state_dir / "state.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None
