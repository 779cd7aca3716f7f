"""dynatick.toml: what it may say, and what is refused with the right name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynatick_stack import project
from dynatick_stack.errors import RefusedError
from dynatick_stack.project import Project

WHOLE = """
[stack]
name = "reminders"
region = "eu-central-1"
bucket = "uploads"
table_write_units = 80000

[handlers]
module = "app.handlers"
requirements = "requirements.txt"
environment = { SENDER = "me" }
policies = ["AmazonSESFullAccess", "arn:aws:iam::123456789012:policy/mine"]

[parameters]
Precision = "second"
ShardCount = 1

[stages.prod.parameters]
ShardCount = 4

[stages.try]
"""


def read(folder: Path, text: str) -> Project:
    (folder / "dynatick.toml").write_text(text, encoding="utf-8")
    return project.read(folder)


def test_everything_that_it_may_say(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").touch()
    found = read(tmp_path, WHOLE)
    assert (found.folder, found.name, found.module) == (tmp_path, "reminders", "app.handlers")
    assert (found.region, found.bucket, found.table_write_units) == ("eu-central-1", "uploads", 80000)
    assert (found.requirements, found.environment) == (tmp_path / "requirements.txt", {"SENDER": "me"})
    assert found.parameters_of(None) == found.parameters_of("try") == {"Precision": "second", "ShardCount": "1"}
    assert found.parameters_of("prod") == {"Precision": "second", "ShardCount": "4"}
    assert (found.stack_of(None), found.stack_of("prod")) == ("reminders", "reminders-prod")
    given = found.template_parameters("prod")
    assert given["HandlersPolicyArns"] == (
        "arn:aws:iam::aws:policy/AmazonSESFullAccess,arn:aws:iam::123456789012:policy/mine"
    )
    assert json.loads(given["HandlersEnvironment"]) == {"SENDER": "me"}
    with pytest.raises(RefusedError, match=r"has no \[stages.test\]; known: prod, try"):
        found.parameters_of("test")


def test_a_name_is_enough_and_it_is_found_from_a_folder_below(tmp_path: Path) -> None:
    (below := tmp_path / "app").mkdir()
    with pytest.raises(RefusedError, match=r"There is no dynatick.toml in .*: dynatick init"):
        project.find(below)
    found = read(tmp_path, '[stack]\nname = "a"')
    assert found == project.find(below) == Project(folder=tmp_path, name="a", module="handlers")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[stak]", "stak is not known; did you mean stack?"),
        ("[else]", "else is not known; known: handlers, parameters, stack, stages"),
        ('[stack]\nNmae = "a"', "[stack] Nmae is not known; did you mean name?"),
        ("[parameters]\nTickMinute = 1", "[parameters] TickMinute is not known; did you mean TickMinutes?"),
        ("stack = 1", "stack is a table; write [stack]"),
        ("[stack]", "[stack] name is missing; expected letters, digits and hyphens, at most 64"),
        ('[stack]\nname = "a b"', "[stack] name: 'a b' is not accepted"),
        ('[handlers]\nmodule = "a.py:b"', "[handlers] module: 'a.py:b' is not accepted; expected a module's name"),
        ('[handlers]\nrequirements = "no.txt"', "[handlers] requirements: 'no.txt' is not accepted; expected a file"),
        ("[handlers]\nenvironment = 1", "[handlers] environment: 1 is not accepted"),
        ("[handlers]\nenvironment = { A = 1 }", "[handlers] environment A: 1 is not accepted; expected text in quotes"),
        ('[handlers]\nenvironment = { AWS_REGION = "x" }', "[handlers] environment: 'AWS_REGION' is not accepted"),
        ("[parameters]\nTickMinutes = 1.5", "[parameters] TickMinutes: 1.5 is not accepted"),
        ('[parameters]\nHandlersModule = "a"', "[parameters] HandlersModule is not for projects: [handlers] module"),
        ('[parameters]\nHandlersEnvironment = "{}"', "not for projects: [handlers] environment has the variables"),
        ('[stack]\nname = "a"\nregion = "Frankfurt"', "[stack] region: 'Frankfurt' is not accepted; expected an AWS"),
        ('[stack]\nname = "a"\nbucket = "A B"', "[stack] bucket: 'A B' is not accepted; expected the name of a bucket"),
        ('[handlers]\nexclude = "docs"', "[handlers] exclude: 'docs' is not accepted; expected names or patterns"),
        ('[handlers]\nexclude = ["docs/"]', "[handlers] exclude: 'docs/' is not accepted"),
        ('[handlers]\npolicies = "A"', "[handlers] policies: 'A' is not accepted; expected names or ARNs"),
        ("[stages]\nprod = 4", "stages.prod is a table; write [stages.prod.parameters]"),
        ("[stages.prod]\nShardCount = 4", "[stages.prod] ShardCount is not known; known: parameters"),
        ("[stages.a.parameters]\nShardCt = 4", "[stages.a.parameters] ShardCt is not known; did you mean ShardCount?"),
        ('[stages."a b".parameters]', "[stages]: 'a b' is not accepted"),
        ("[stack", "dynatick.toml: Expected"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    if "[stack]" not in text and "stack = 1" not in text and text != "[stack":
        text += '\n[stack]\nname = "a"'
    with pytest.raises(RefusedError) as refused:
        read(tmp_path, text)
    assert said in str(refused.value)
