"""``dynatick task import``: each line on its own, told by its number, and twice is as good as once."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from tests.builders import InProcess
from tests.unit.cli.conftest import Shell

from dynatick import TaskClient
from dynatick.cli import importing
from dynatick.cli.session import Session
from dynatick.engine.ports import StoreFailure
from dynatick.store.memory import MemoryStore

FILE = """\
{"taskId": "a", "dueAt": "2026-12-31T12:30:00Z", "payload": {"n": 1}}

{"taskId": "b"}
{"taskId": "a", "dueAt": "2026-12-31T12:30:00Z"}
{not json
[1]
{"dueAt": "2026-12-31T12:30:00Z"}
{"taskId": "c", "taskDateTime": "2026-12-31T24:00:00Z"}
{"taskId": "d", "status": "completed"}
{"taskId": "e", "delaySeconds": 60, "tenant": "t1"}
"""


def written(tmp_path: Path, text: str | bytes = FILE) -> str:
    file = tmp_path / "tasks.ndjson"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(file)


def test_each_line_has_its_fate(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    ended = shell("task", "import", written(tmp_path), "-o", "json")
    assert ended.json == {"inserted": 3, "exists": 1, "refused": 5, "failed": 0}
    assert ended.code == 3
    told = sorted(ended.err.splitlines())
    assert [line.partition(":")[0] for line in told] == ["error", *(f"line {n}" for n in (5, 6, 7, 8, 9))]
    assert told[0] == "error: 5 lines were refused; the other tasks are in"
    assert told[2] == "line 6: line: [1] is not accepted; expected a JSON object with taskId"
    assert told[5] == "line 9: status: 'completed' is not accepted; leave it out: it is set by Dynatick"
    assert world.row("a")["taskDateTime"] == "2026-12-31#12:30"
    assert world.row("b") == {"taskId": "b"}
    assert world.row("e")["tenant"] == "t1"


def test_twice_is_as_good_as_once(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    file = written(tmp_path, '{"taskId": "a"}\n{"taskId": "b"}')  # without a line's end at the end
    assert shell("task", "import", file, "-o", "json").json["inserted"] == 2
    again = shell("task", "import", file, "-o", "json")
    assert (again.code, again.json) == (0, {"inserted": 0, "exists": 2, "refused": 0, "failed": 0})


def test_from_stdin(shell: Shell, world: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO('\ufeff{"taskId": "größe"}\n'.encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    assert shell("task", "import", "-").code == 0
    assert world.store.get("größe") is not None


def test_lines_that_are_no_text_or_too_long(shell: Shell, world: InProcess, tmp_path: Path) -> None:
    ended = shell("task", "import", written(tmp_path, b'{"taskId": "\xff"}\n{"taskId": "a"}\n'))
    assert "line 1: line: " in ended.err and "expected UTF-8: invalid start byte" in ended.err
    assert world.store.get("a") is not None
    long = b'{"taskId": "' + b"x" * importing.MAX_LINE_BYTES + b'"}'
    ended = shell("task", "import", written(tmp_path, long))
    assert (ended.code, ended.err) == (3, "error: line 1 is longer than 4194304 bytes\n")


def test_progress_where_there_is_no_terminal(
    shell: Shell, world: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "_EVERY", 20)
    file = written(tmp_path, "".join(json.dumps({"taskId": f"t{n}"}) + "\n" for n in range(50)))
    assert shell("task", "import", file).err == "20 inserted\n40 inserted\n"


def test_a_bar_on_a_terminal(shell: Shell, world: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    ended = shell("task", "import", written(tmp_path), "-o", "json")
    assert ended.json["inserted"] == 3
    assert "Importing" in ended.err and "line 6" in ended.err


class Away(MemoryStore):
    """Takes no task."""

    def create_many(self, rows: object) -> list[bool | StoreFailure]:
        assert isinstance(rows, list)
        return [StoreFailure("throttled")] * len(rows)


def test_a_table_that_is_away_ends_it(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world = InProcess(store=Away())
    world.tick()
    monkeypatch.setattr(Session, "client", lambda session: TaskClient(world.store, clock=world.clock))
    task = '{"taskId": "t%d", "dueAt": "2026-12-31T12:30:00Z"}\n'
    few = shell("task", "import", written(tmp_path, "".join(task % n for n in range(30))), "-o", "json")
    assert (few.code, few.json["failed"]) == (6, 30)
    assert few.err.splitlines()[-1] == "error: 30 tasks could not be inserted; import the file again"
    many = shell("task", "import", written(tmp_path, "".join(task % n for n in range(5000))), "-o", "json")
    assert (many.code, many.json["failed"]) == (6, 200)
    assert many.err.splitlines()[-1] == (
        "error: stopped at line 200: 200 failures in a row; import the file again, what is in stays"
    )
