"""dynatick.toml: what it may say, and what is refused with the right name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dynatick_stack import project, template
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
include = ["*.html"]
exclude = ["docs"]
environment = { SENDER = "me", HOST = "localhost" }
secrets = { SMTP_PASSWORD = "ssm:/reminders/smtp", TOKEN = "secretsmanager:reminders/shop#token" }
policies = ["AmazonSESFullAccess", "arn:aws:iam::123456789012:policy/mine"]

[parameters]
Precision = "second"
ShardCount = 1

[stages.prod.stack]
region = "eu-west-1"
table_write_units = 120000

[stages.prod.handlers]
environment = { HOST = "mail.example.com" }
secrets = { SMTP_PASSWORD = "ssm:/prod/smtp" }
policies = []

[stages.prod.parameters]
ShardCount = 4

[stages.try]

[stages.named]
stack = { name = "another" }
"""


def read(folder: Path, text: str) -> Project:
    (folder / "dynatick.toml").write_text(text, encoding="utf-8")
    return project.read(folder)


def test_everything_that_it_may_say(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").touch()
    found = read(tmp_path, WHOLE)
    assert (found.folder, found.name, found.module) == (tmp_path, "reminders", "app.handlers")
    assert (found.region, found.bucket, found.table_write_units) == ("eu-central-1", "uploads", 80000)
    assert (found.requirements, found.include, found.exclude) == (tmp_path / "requirements.txt", ("*.html",), ("docs",))
    assert found.environment == {"SENDER": "me", "HOST": "localhost"}
    assert found.parameters == {"Precision": "second", "ShardCount": "1"}
    given = found.template_parameters()
    assert given["HandlersPolicyArns"] == (
        "arn:aws:iam::aws:policy/AmazonSESFullAccess,arn:aws:iam::123456789012:policy/mine"
    )
    assert json.loads(given["HandlersEnvironment"]) == found.environment
    assert json.loads(given["HandlersSecrets"]) == found.secrets


def test_a_stage_says_what_differs_entry_by_entry(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").touch()
    found = read(tmp_path, WHOLE)
    prod = found.of("prod")
    assert (prod.name, prod.region, prod.bucket, prod.table_write_units) == (
        "reminders-prod", "eu-west-1", "uploads", 120000,
    )  # fmt: skip
    assert prod.environment == {"SENDER": "me", "HOST": "mail.example.com"}
    assert prod.secrets == {"SMTP_PASSWORD": "ssm:/prod/smtp", "TOKEN": "secretsmanager:reminders/shop#token"}
    assert (prod.policies, prod.module) == ((), "app.handlers")
    assert prod.parameters == {"Precision": "second", "ShardCount": "4"}
    assert replace(found.of("try"), name="reminders") == replace(found, stages={})
    assert (found.of("try").name, found.of("named").name, found.of(None)) == ("reminders-try", "another", found)
    with pytest.raises(RefusedError, match=r"has no \[stages.test\]; known: named, prod, try"):
        found.of("test")


def test_each_setting_of_a_stage_says_where_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").touch()
    found = {one.name: (one.value, one.source) for one in read(tmp_path, WHOLE).of("prod").settings}
    assert found == {
        "[stack] name": ("reminders-prod", "[stack], and the stage"),
        "[stack] region": ("eu-west-1", "[stages.prod.stack]"),
        "[stack] bucket": ("uploads", "[stack]"),
        "[stack] table_write_units": ("120000", "[stages.prod.stack]"),
        "[handlers] module": ("app.handlers", "[handlers]"),
        "[handlers] requirements": ("requirements.txt", "[handlers]"),
        "[handlers] include": ("*.html", "[handlers]"),
        "[handlers] exclude": ("docs", "[handlers]"),
        "[handlers] environment SENDER": ("me", "[handlers]"),
        "[handlers] environment HOST": ("mail.example.com", "[stages.prod.handlers]"),
        "[handlers] secrets SMTP_PASSWORD": ("ssm:/prod/smtp", "[stages.prod.handlers]"),
        "[handlers] secrets TOKEN": ("secretsmanager:reminders/shop#token", "[handlers]"),
        "[handlers] policies": ("", "[stages.prod.handlers]"),
        "[parameters] Precision": ("second", "[parameters]"),
        "[parameters] ShardCount": ("4", "[stages.prod.parameters]"),
    }


def test_the_arns_of_secrets_are_those_that_handlers_name_and_no_others(tmp_path: Path) -> None:
    text = """[stack]
name = "a"
[handlers.secrets]
A = "ssm:/reminders/smtp"
B = "ssm:token"
C = "secretsmanager:reminders/shop#token"
D = "secretsmanager:reminders/shop#user"
"""
    given = read(tmp_path, text).template_parameters(partition="aws-cn", region="cn-north-1", account="123456789012")
    assert given["HandlersSecretArns"].split(",") == [
        "arn:aws-cn:secretsmanager:cn-north-1:123456789012:secret:reminders/shop-??????",
        "arn:aws-cn:ssm:cn-north-1:123456789012:parameter/reminders/smtp",
        "arn:aws-cn:ssm:cn-north-1:123456789012:parameter/token",
    ]
    template.check_parameters(given, template.load())
    template.check_parameters(read(tmp_path, text).template_parameters(), template.load())


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
        ("[else]", "else is not known; known: handlers, parameters, schedules, stack, stages"),
        ('[stack]\nNmae = "a"', "[stack] Nmae is not known; did you mean name?"),
        ("[parameters]\nTickMinute = 1", "[parameters] TickMinute is not known; did you mean TickMinutes?"),
        ("stack = 1", "stack is a table; write [stack]"),
        ("[stack]", "[stack] name is missing; expected letters, digits and hyphens, at most 64"),
        ('[stack]\nname = "a b"', "[stack] name: 'a b' is not accepted"),
        ('[handlers]\nmodule = "a.py:b"', "[handlers] module: 'a.py:b' is not accepted; expected a module's name"),
        ('[handlers]\nrequirements = "no.txt"', "[handlers] requirements: 'no.txt' is not accepted; expected a file"),
        ("[handlers]\nenvironment = 1", "[handlers] environment is a table; expected variables"),
        ("[handlers]\nenvironment = { A = 1 }", "[handlers] environment A: 1 is not accepted; expected text in quotes"),
        ('[handlers]\nenvironment = { AWS_REGION = "x" }', "[handlers] environment: 'AWS_REGION' is not accepted"),
        ("[parameters]\nTickMinutes = 1.5", "[parameters] TickMinutes: 1.5 is not accepted"),
        ('[parameters]\nHandlersModule = "a"', "[parameters] HandlersModule is not for projects: [handlers] module"),
        ('[parameters]\nHandlersEnvironment = "{}"', "not for projects: [handlers] environment has the variables"),
        ('[stack]\nname = "a"\nregion = "Frankfurt"', "[stack] region: 'Frankfurt' is not accepted; expected an AWS"),
        ('[stack]\nname = "a"\nbucket = "A B"', "[stack] bucket: 'A B' is not accepted; expected the name of a bucket"),
        ('[handlers]\nexclude = "docs"', "[handlers] exclude: 'docs' is not accepted; expected names or patterns"),
        ('[handlers]\nexclude = ["docs/"]', "[handlers] exclude: 'docs/' is not accepted"),
        ('[handlers]\ninclude = "docs"', "[handlers] include: 'docs' is not accepted; expected names or patterns"),
        ("[handlers]\nsecrets = 1", "[handlers] secrets is a table; expected names with references"),
        ('[handlers]\nsecrets = { A = "" }', "[handlers] secrets A is no reference; expected ssm:NAME or"),
        ('[handlers]\nsecrets = { AWS_KEY = "ssm:a" }', "[handlers] secrets: 'AWS_KEY' is not accepted"),
        (
            '[handlers]\nenvironment = { A = "x" }\n[stages.b.handlers]\nsecrets = { A = "ssm:a" }',
            "[stages.b.handlers] secrets A is in environment, too",
        ),
        ('[parameters]\nHandlersSecrets = "{}"', "not for projects: [handlers] secrets names them"),
        ('[handlers]\npolicies = "A"', "[handlers] policies: 'A' is not accepted; expected names or ARNs"),
        ("[stages]\nprod = 4", "stages.prod is a table; write [stages.prod.parameters]"),
        (
            "[stages.prod]\nShardCount = 4",
            "[stages.prod] ShardCount is not known; known: handlers, parameters, schedules, stack",
        ),
        ("[stages.prod]\nstack = 4", "stages.prod.stack is a table; write [stages.prod.stack]"),
        ("[stages.a.handlers]\nenvironment = { B = 1 }", "[stages.a.handlers] environment B: 1 is not accepted"),
        ("[stages.a.handlers]\nsecrets = 1", "[stages.a.handlers] secrets is a table"),
        ('[stages.a.stack]\nregion = "Berlin"', "[stages.a.stack] region: 'Berlin' is not accepted"),
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


def test_what_is_no_reference_is_not_shown(tmp_path: Path) -> None:
    """It may be the secret itself."""
    with pytest.raises(RefusedError) as refused:
        read(tmp_path, '[stack]\nname = "a"\n[handlers]\nsecrets = { SMTP_PASSWORD = "hunter2" }')
    assert "SMTP_PASSWORD is no reference; expected ssm:NAME" in str(refused.value)
    assert "hunter2" not in str(refused.value)
