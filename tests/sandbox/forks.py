"""The parent of all sandboxes of a test run: python -m tests.sandbox.forks SOCKET.

It has imported what the functions need, and has run nothing: its children begin where a new interpreter would be after
half a second. Each message on the socket brings three files, the child's standard input, output and error; a closed
socket ends all. As only a parent can know, it writes to a child's output when that has stopped, or has ended.
"""

from __future__ import annotations

import functools
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress

import boto3
import botocore.session
from tests.sandbox.worker import main

import dynatick.engine.processor
import dynatick.engine.scheduler
import dynatick.observability  # noqa: F401 - for the functions

# What botocore has read of the services' descriptions is there for the children too.
botocore.session.create_loader = functools.cache(botocore.session.create_loader)
for service in ("dynamodb", "lambda", "sqs"):
    boto3.Session(region_name="us-east-1").client(service)


def serve(control: socket.socket) -> bool:
    """Forks until the socket is closed. True in a child."""
    outputs: dict[int, int] = {}  # of the children
    changed, change = os.pipe()
    os.set_blocking(change, False)
    signal.set_wakeup_fd(change)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        readable, _, _ = select.select([control.fileno(), changed], [], [])
        if changed in readable:
            os.read(changed, 1000)
            _report(outputs)
        if control.fileno() in readable:
            _, files, _, _ = socket.recv_fds(control, 1, 3)
            if not files:
                break
            if not (pid := os.fork()):
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for own, file in enumerate(files):
                    os.dup2(file, own)
                for file in (*files, *outputs.values(), changed, change, control.detach()):
                    os.close(file)
                os.setsid()  # Ctrl-C is for the process of the tests, which ends it in order
                _write(1, pid=os.getpid())  # here, so that it comes before whatever else it says
                return True
            stdin, outputs[pid], stderr = files
            os.close(stdin)
            os.close(stderr)
    for pid in outputs:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return False


def _report(outputs: dict[int, int]) -> None:
    while outputs:
        pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        if not pid:
            break
        if os.WIFSTOPPED(status):
            _write(outputs[pid], stopped=True)
        else:
            _write(outputs[pid], ended=os.waitstatus_to_exitcode(status))
            os.close(outputs.pop(pid))


def _write(output: int, **line: object) -> None:
    with suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(output, f"\n{json.dumps(line)}\n".encode())  # the child may have died within a line


if __name__ == "__main__" and serve(socket.socket(fileno=int(sys.argv[1]))):
    main()
