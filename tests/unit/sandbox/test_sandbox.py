"""The sandbox behaves as Lambda does between invocations, and its seam covers what a function says."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sandbox.process import Sandbox
from tests.sandbox.seam import Fault, Seam

PROGRAM = """\
import json, os, signal, sys, threading, time

print(json.dumps({"ready": True}), flush=True)
count = 0

def work():
    global count
    while True:
        count += 1
        time.sleep(0.001)

for line in sys.stdin:
    event = json.loads(line)["event"]
    if event.get("begin"):
        threading.Thread(target=work, daemon=True).start()
    answer = {"error": "as asked"} if event.get("raise") else {"returned": [count, len(event.get("bulk", ""))]}
    print(json.dumps({**answer, "hits": {}}), flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    """Of a program that counts in a thread from its first event on."""
    (tmp_path / "counting_program.py").write_text(PROGRAM)
    environ = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(tmp_path)}
    made = Sandbox("counting_program", environ=environ, log=tmp_path / "log")
    yield made
    made.close()


def invoke(sandbox: Sandbox, **event: object) -> object:
    sandbox.begin(event, life=1.0)
    return sandbox.wait().value


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_threads_of_an_invocation_go_on_in_the_next_one_only(sandbox: Sandbox, ends: str) -> None:
    invoke(sandbox, begin=True, **({"raise": True} if ends == "raises" else {}))
    state = Path(f"/proc/{sandbox.pid}/stat")
    if state.exists():
        assert state.read_text().rpartition(")")[2].split()[0] == "T"
    assert sandbox.alive
    counts = [invoke(sandbox)]
    while counts[-1] == counts[0]:  # it does go on then
        counts.append(invoke(sandbox))


def test_an_event_that_no_pipe_holds(sandbox: Sandbox) -> None:
    """To a process that is frozen."""
    invoke(sandbox)
    _, bulk = invoke(sandbox, bulk="x" * 300_000)  # type: ignore[misc]
    assert bulk == 300_000


@pytest.mark.parametrize(("at", "text"), [("log", '{"level": "INFO"}'), ("metrics", '{"_aws": {}}')])
def test_what_a_function_says_meets_faults_of_its_kind_alone(
    at: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seam, real = Seam(), sys.stdout
    seam.arm([Fault(at=at, do="fail before"), Fault(at="any", do="kill before", times=None)])
    with seam.over_output():
        sys.stdout.write("\n")
        sys.stdout.write('{"other": 1}' if at == "metrics" else '{"_aws": {"other": 1}}')
        with pytest.raises(OSError, match="set up by a test"):
            sys.stdout.write(text)
        sys.stdout.write(text)
    assert sys.stdout is real
    assert text in capsys.readouterr().out
    assert seam.hits == {f"fail before @ {at}": 1}
