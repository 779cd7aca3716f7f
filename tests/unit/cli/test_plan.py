"""``dynatick plan``: what it prints, and what it refuses. What a plan says is tested in tests/unit/stack."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Shell

from dynatick.cli.doctor import executions_of
from dynatick_stack import project, template
from dynatick_stack.limits import check_quotas


def test_a_plan_names_each_parameter_with_its_reason(shell: Shell) -> None:
    ended = shell("plan", "--burst", "1000000", "--within", "60s", "--task-ms", "200")
    assert ended.code == 0 and ended.err == ""
    assert ended.lines[0].startswith("1,000,000 tasks in one bucket, 200 ms and 700 bytes each: the last one begins ")
    table = {line.split()[0]: line.split()[1] for line in ended.lines[3:9]}
    assert table["ShardCount"] == "256" and table["WarmThroughput"] == "40000"
    assert set(table) == {
        "ShardCount", "MaxWorkers", "TaskThreads", "ProcessorMemoryMb", "WarmThroughput", "MaxWriteUnits"
    }  # fmt: skip
    assert "within the quota" in ended.out and "once, to warm table and index" in ended.out
    assert any(line.startswith("Inserting   2,000,000 write units") for line in ended.lines)
    api = executions_of({**template.defaults(), "ApiEndpoint": "ENABLED"}, 1).api
    assert f"the HTTP API takes up to {api} more executions, unless" in ended.out


def test_a_late_tick_is_said_and_can_be_planned_for(shell: Shell) -> None:
    """AWS promises that a tick comes in its minute, and no more."""
    million = ("plan", "--burst", "1000000", "--within", "60s", "--task-ms", "200")
    said = "planned for 1 s after its minute; if it comes 8 s after, the last task begins within 64 s: too late"
    assert f"Tick        {said}" in shell(*million).out
    assert "the last task begins within" in shell("plan", "--burst", "1000").out
    late = shell(*million, "--tick-delay", "8s", "-o", "json").json
    assert not late["feasible"], "there are no write units for it"
    raised = shell(*million, "--tick-delay", "8s", "--table-write-units", "80000", "-o", "json").json
    assert raised["feasible"] and raised["parameters"]["WarmThroughput"] > 40_000
    assert raised["lastStartSeconds"]["withLateTick"] == raised["lastStartSeconds"]["planned"] <= 60
    assert "Tick " not in shell(*million, "--tick-delay", "8s").out
    few = ("plan", "--burst", "100000", "--precision", "second", "-o", "json")
    starts = [shell(*few, "--tick-delay", delay).json["lastStartSeconds"] for delay in ("1s", "8s")]
    assert starts[0] == starts[1], "wake-ups begin the passes of 16 shards before a late tick comes"
    assert starts[0]["withLateTick"] == starts[0]["planned"] <= 60


def test_what_it_prints_for_a_project_is_accepted_there(shell: Shell, tmp_path: Path) -> None:
    lines = shell("plan", "--burst", "1000000", "--task-ms", "1000", "--precision", "second").lines
    begin = lines.index("[parameters]")
    block = "\n".join(lines[begin : lines.index("", begin)])
    (tmp_path / "dynatick.toml").write_text(f'[stack]\nname = "s"\n[handlers]\nmodule = "handlers"\n{block}\n')
    (tmp_path / "handlers.py").write_text("")
    parameters = project.read(tmp_path).parameters
    assert parameters["ShardCount"] == "256" and parameters["Precision"] == "second"
    template.check_parameters(parameters, template.load())
    (override,) = [line for line in lines if line.startswith("Or: sam deploy --parameter-overrides ")]
    assert dict(pair.split("=") for pair in override.split()[4:]) == parameters
    assert tomllib.loads(block)["parameters"].keys() == parameters.keys()


def test_what_it_prints_for_a_raised_quota_is_accepted_as_well(shell: Shell) -> None:
    for more, units in ((["--table-write-units", "80000"], 80_000), (["--task-ms", "1000"], None)):
        lines = shell("plan", "--burst", "1000000", *more).lines
        said = [line for line in lines if line.startswith("table_write_units")]
        assert said == ([] if units is None else [f"table_write_units = {units}"])
        begin = lines.index("[parameters]")
        parameters = tomllib.loads("\n".join(lines[begin : lines.index("", begin)]))["parameters"]
        check_quotas({name: str(value) for name, value in parameters.items()}, units)


def test_as_a_document(shell: Shell) -> None:
    found = shell("plan", "--per-day", "100000000", "--peak", "10x", "-o", "json").json
    assert (found["feasible"], found["tasksInBucket"], found["parameters"]["ShardCount"]) == (True, 694_445, 256)
    assert found["lastStartSeconds"]["planned"] <= found["withinSeconds"] == 60
    assert found["dollars"]["load"] == pytest.approx(10_000, rel=0.1)
    assert [quota["raise"] for quota in found["quotas"]] == [False, False]
    (line,) = shell("plan", "--schedules", "100000", "--every", "1m", "-o", "jsonl").lines
    assert json.loads(line)["tasksInBucket"] == 100_000
    assert "for a month of this load" in shell("plan", "--schedules", "1000").out


def test_what_is_too_much_says_why_and_what_to_raise(shell: Shell) -> None:
    ended = shell("plan", "--burst", "10000000")
    assert ended.code == 0
    assert "can't all begin within 60 s" in ended.lines[0] and "What limits it: index partition." in ended.lines[0]
    assert "of 40,000, raise the quota" in ended.out


def test_the_commands_of_the_documents_work(shell: Shell) -> None:
    pages = [template.ROOT / "docs" / name for name in ("performance.md", "how-to/burst.md")]
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    commands = [line for line in lines if line.startswith("dynatick plan")]
    assert len(commands) == 7
    for command in commands:
        ended = shell(*command.split()[1:])
        assert ended.code == 0 and "ShardCount" in ended.out, command
