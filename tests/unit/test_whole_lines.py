from __future__ import annotations

import subprocess
import sys
from threading import Thread

import pytest

from dynatick.whole_lines import whole_lines


def in_thread(*texts: str) -> None:
    """Another thread writes them one by one."""
    thread = Thread(target=lambda: [sys.stdout.write(text) for text in texts])
    thread.start()
    thread.join()


def test_no_thread_writes_within_the_line_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    with whole_lines():
        sys.stdout.write("To")
        sys.stdout.write(" ada")
        in_thread('{"action": ', '"x"}\n', "begun")
        sys.stdout.write("\n")
        in_thread("a\nb\n")
    assert capsys.readouterr().out == '{"action": "x"}\nTo ada\na\nb\nbegun\n'


def test_what_is_flushed_is_written_though_its_line_has_not_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with whole_lines():
        sys.stdout.write("so far")
        sys.stdout.flush()
        assert capsys.readouterr().out == "so far"
        sys.stdout.write(", so good\n")
        sys.stdout.flush()
    assert capsys.readouterr().out == ", so good\n"


def test_what_an_error_ends_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), whole_lines():
        sys.stdout.write("before")
        raise KeyError
    assert capsys.readouterr().out == "before\n"


def test_invocations_that_a_simulation_never_ends_do_not_pile_up(capsys: pytest.CaptureFixture[str]) -> None:
    before, unended = sys.stdout, [whole_lines() for _ in range(2000)]
    for one in unended:
        one.__enter__()
    sys.stdout.write("a\n")
    assert capsys.readouterr().out == "a\n"
    for one in unended:  # the first one that began ends first
        one.__exit__(None, None, None)
    assert sys.stdout is before


def test_all_else_is_as_before(capfd: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    with whole_lines():
        assert (sys.stdout.encoding, sys.stdout.isatty(), sys.stdout.writable()) == (before.encoding, False, True)
        sys.stdout.writelines(["a", "b\n"])
        sys.stdout.flush()
        sys.stdout.buffer.write(b"c\n")
        sys.stdout.flush()
        subprocess.run(["echo", "d"], stdout=sys.stdout, check=True)
    assert sys.stdout is before
    assert capfd.readouterr().out == "ab\nc\nd\n"
