"""The zips that go to AWS: what they hold, and that the same content gives the same zip."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import typer

from dynatick_stack import declared_schedules, packaging, project, release_commands, template
from dynatick_stack.dev.handlers import Checked, HandlersError
from dynatick_stack.errors import BuildError, RefusedError, StackError
from dynatick_stack.packaging import Packages, Platform, build_packages, write_folder
from dynatick_stack.project_files import project_files
from dynatick_stack.venv import pip_install

ROOT = Path(__file__).parents[3]
HERE = "{}.{}".format(*sys.version_info)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """pip installs a file of the name of each requirement, and ``shared_library.py``. The calls."""
    calls: list[list[str]] = []

    def pip(to: Path, platform: Platform, say: object, *what: str | Path) -> None:
        calls.append([*platform.options, *map(str, what)])
        asked = Path(what[-1]).read_text()
        (to / "shared_library.py").write_text("")
        if "powertools" not in asked:  # not the layer's own lock
            (to / "asked.txt").write_text(asked)
            constraints = [Path(what[n + 1]).read_text() for n, word in enumerate(what) if word == "-c"]
            (to / "constraints.txt").write_text("".join(constraints))

    monkeypatch.setattr(packaging, "_pip", pip)
    return calls


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    (folder / "texts").mkdir(parents=True)
    (folder / "handlers.py").write_text("import texts\n")
    (folder / "texts" / "__init__.py").write_text("HELLO = 1\n")
    (folder / "dynatick.toml").write_text('[stack]\nname = "mine"\n')
    return folder


def build(
    folder: Path, cache: Path, platform: Platform | None = None, say: Callable[[str], None] = lambda text: None
) -> Packages:
    mine = project.read(folder)
    files = list(project_files(mine))
    return build_packages(mine, files, platform or Platform.of("arm64"), say=say, cache=cache)


def written(folder: Path, to: Path, stage: str | None = None, **options: bool) -> tuple[dict[str, Any], set[str]]:
    """The template of a folder for a pipeline, and the names of its files."""
    mine = project.read(folder).of(stage)
    write_folder(mine, list(project_files(mine)), to, say=lambda text: None, cache=to.parent / "cache", **options)
    return json.loads((to / "template.json").read_text()), {path.name for path in to.iterdir()}


def names(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def test_functions_layer_and_handlers_with_libraries_for_lambda(
    mine: Path, tmp_path: Path, installed: list[list[str]]
) -> None:
    packages = build(mine, tmp_path / "cache")
    functions = {name: names(path) for name, path in packages.of_template.items() if name.endswith("Function")}
    assert functions["ProcessorFunction"] == {"app.py"}, "our sample handlers would hide the project's"
    assert functions["SchedulerFunction"] == {"app.py", "assignment.py"}
    layer = names(packages.of_template["DynatickLayer"])
    assert {"python/dynatick/__init__.py", "python/dynatick/py.typed", "python/shared_library.py"} <= layer
    assert names(packages.handlers) == {"python/handlers.py", "python/texts/__init__.py"}
    (call,) = installed
    assert {"--only-binary=:all:", "--require-hashes", "manylinux2014_aarch64"} <= set(call)
    assert call[call.index("--python-version") + 1] == "3.14"


@pytest.mark.parametrize(("python", "has_byte_code"), [(HERE, True), ("2.7", False)])
def test_byte_code_is_of_the_same_python_or_not_there(
    mine: Path, tmp_path: Path, python: str, has_byte_code: bool
) -> None:
    packages = build(mine, tmp_path / "cache", Platform(architecture="arm64", python=python))
    assert any(name.endswith(".pyc") for name in names(packages.of_template["DynatickLayer"])) is has_byte_code


def test_a_library_of_the_layer_is_not_in_the_handlers(mine: Path, tmp_path: Path, installed: list[list[str]]) -> None:
    (mine / "dynatick.toml").write_text('[stack]\nname = "mine"\n[handlers]\nrequirements = "needed.txt"\n')
    (mine / "needed.txt").write_text("jinja2\ndynatick[cli]==0.1.0\nDynatick\n")
    handlers = build(mine, tmp_path / "cache").handlers
    assert "python/shared_library.py" not in names(handlers), "it is in the layer"
    with zipfile.ZipFile(handlers) as archive:
        assert archive.read("python/asked.txt") == b"jinja2"
        pins = archive.read("python/constraints.txt").decode()
    assert "boto3==" in pins
    assert "--hash" not in pins
    (mine / "needed.txt").write_text("jinja2==3.1 \\\n    --hash=sha256:00\n")
    build(mine, tmp_path / "cache")
    assert "--no-deps" in installed[-1] and "-c" not in installed[-1], "a lock with hashes is installed as it is"


def test_files_that_the_requirements_name_count_and_are_found(mine: Path, tmp_path: Path) -> None:
    """pip gets a copy of them elsewhere."""
    (mine / "dynatick.toml").write_text('[stack]\nname = "mine"\n[handlers]\nrequirements = "needed.txt"\n')
    (mine / "more" / "wheels").mkdir(parents=True)
    (mine / "needed.txt").write_text(
        "-r more/base.txt # what all need\n--constraint=more/fixed.txt\n-r https://example.com/others.txt\n"
        "dynatick-shop==1.0\ndynatick==0.1\ndynatick[cli]\nDynatick >= 0.1\n-f https://example.com/w\n"
    )
    (mine / "more" / "base.txt").write_text("jinja2\ndynatick\n--requirement 'last one.txt'\n-f wheels\n-cfixed.txt\n")
    (mine / "more" / "last one.txt").write_text("last\n")
    (mine / "more" / "fixed.txt").write_text("jinja2==3.1\n")
    first = build(mine, tmp_path / "cache").handlers
    with zipfile.ZipFile(first) as archive:
        assert archive.read("python/asked.txt").decode().splitlines() == [
            "jinja2", "last", f"--find-links {mine}/more/wheels", "-r https://example.com/others.txt",
            "dynatick-shop==1.0", "-f https://example.com/w",
        ]  # fmt: skip
        assert archive.read("python/constraints.txt").decode().endswith("\njinja2==3.1\njinja2==3.1")
    for name in ("fixed.txt", "last one.txt"):
        (mine / "more" / name).write_text("jinja2==3.2\n")
        changed = build(mine, tmp_path / "cache").handlers
        assert changed != first
        first = changed


@pytest.mark.parametrize(
    "line",
    ["{wheel}", "shop @ file://{wheel} # ours", "{wheel}[all] ; python_version > '3'", "--find-links {folder}\nshop"],
)
def test_a_wheel_of_the_project_that_was_built_anew_is_packaged(line: str, mine: Path, tmp_path: Path) -> None:
    (mine / "dynatick.toml").write_text('[stack]\nname = "mine"\n[handlers]\nrequirements = "needed.txt"\n')
    wheel = tmp_path / "our wheels" / "shop-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    quoted = str(wheel).replace(" ", "%20") if "file:" in line else str(wheel)
    (mine / "needed.txt").write_text(line.format(wheel=quoted, folder=f'"{wheel.parent}"'))
    built = []
    for content in ("1", "2", "2"):
        wheel.write_text(content)
        built.append(build(mine, tmp_path / "cache").handlers)
    assert built[0] != built[1] == built[2]


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ("-r missing.txt", "missing.txt, which .*base.txt names, can't be read"),
        ("-r base.txt", "base.txt names itself"),
    ],
)
def test_a_file_of_requirements_that_can_not_be_read_is_named(mine: Path, tmp_path: Path, base: str, said: str) -> None:
    (mine / "dynatick.toml").write_text('[stack]\nname = "mine"\n[handlers]\nrequirements = "needed.txt"\n')
    (mine / "needed.txt").write_text("-r base.txt\n")
    (mine / "base.txt").write_text(base)
    with pytest.raises(BuildError, match=said):
        build(mine, tmp_path / "cache")


def test_libraries_are_chosen_for_the_machine_that_runs_them(tmp_path: Path) -> None:
    """What its Python and its processor need is there, and not what they don't, whatever this interpreter is."""
    there = Platform(architecture="arm64", python="3.99")
    index, to, needed = tmp_path / "index", tmp_path / "to", tmp_path / "needed.txt"
    index.mkdir()
    needed.write_text('direct; python_version >= "3.99"\nolder; python_version < "3.99"\nweb\n')
    requires = {"web": ['cgi; python_full_version >= "3.99"', 'shim; python_version < "3.99"',
                        'arm; platform_machine == "aarch64"', 'win; sys_platform == "win32"']}  # fmt: skip
    for name in ("direct", "older", "web", "cgi", "shim", "arm", "win"):
        a_wheel(index, name, requires.get(name, ()))
    options = (*there.options, "--no-index", "--find-links", index)
    pip_install(lambda text: None, to, *options, "-r", needed, markers=there.markers)
    assert {path.stem for path in to.glob("*.py")} == {"direct", "web", "cgi", "arm"}


def a_wheel(folder: Path, name: str, requires: Iterable[str]) -> None:
    about = f"{name}-1.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1", *(f"Requires-Dist: {one}" for one in requires)]
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{about}/METADATA", "\n".join([*lines, ""]))
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")


def test_the_same_content_is_the_same_zip(mine: Path, tmp_path: Path, installed: list[list[str]]) -> None:
    here = Platform(architecture="arm64", python=HERE)  # so that there is byte code
    first = build(mine, tmp_path / "cache", here)
    again = build(mine, tmp_path / "cache", here)
    elsewhere = build(mine, tmp_path / "another", here)
    assert again == first
    zips, others = ([*built.of_template.values(), built.handlers] for built in (first, elsewhere))
    assert [(one.name, one.read_bytes()) for one in zips] == [(one.name, one.read_bytes()) for one in others]
    (mine / "handlers.py").write_text("changed = True\n")
    changed = build(mine, tmp_path / "cache", here)
    assert changed.of_template == first.of_template
    assert changed.handlers != first.handlers
    assert len(installed) == 2, "libraries are fetched once for each cache"


def test_data_files_go_with_the_handlers_and_are_named(mine: Path, tmp_path: Path) -> None:
    (mine / "texts" / "mail.html").write_text("<p>Hello")
    (mine / "test_handlers.py").touch()
    said: list[str] = []
    handlers = build(mine, tmp_path / "c", say=said.append).handlers
    assert names(handlers) == {"python/handlers.py", "python/texts/__init__.py", "python/texts/mail.html"}
    assert said[1] == "Handlers: 3 files, 1 of them not Python: texts/mail.html"
    said_last = r"Unpacked they take 0\.0 MB with what they require, \d\.\d with Dynatick's code; Lambda allows 250"
    assert re.fullmatch(said_last, said[-1])
    for n in range(12):
        (mine / f"{n:02}.txt").touch()
    build(mine, tmp_path / "c", say=said.append)
    assert said[-2].endswith("08.txt, 09.txt, …")


def test_a_file_that_becomes_a_program_is_a_change(mine: Path, tmp_path: Path) -> None:
    program = mine / "report"
    program.write_text("#!/bin/sh\n")
    built = []
    for mode in (0o644, 0o600, 0o700):
        program.chmod(mode)
        built.append(build(mine, tmp_path / "cache").handlers)
    with zipfile.ZipFile(built[-1]) as archive:
        assert archive.getinfo("python/report").external_attr >> 16 == 0o755
    assert built[0] == built[1] != built[2], "whatever the machine's umask is"


def test_what_may_be_secret_is_not_packaged_and_is_named(mine: Path, tmp_path: Path) -> None:
    """Handlers may need one, such as a certificate to trust, and would miss it on AWS only."""
    (mine / "certs").mkdir()
    for name in ("certs/ca.pem", "prod.env", "certs/ca.crt"):
        (mine / name).touch()
    said: list[str] = []
    handlers = build(mine, tmp_path / "c", say=said.append).handlers
    assert "python/certs/ca.crt" in names(handlers)
    assert not {"python/certs/ca.pem", "python/prod.env"} & names(handlers)
    (line,) = [line for line in said if line.startswith("Not packaged")]
    assert line.startswith("Not packaged, since they may be secret: certs/ca.pem, prod.env. ")


def test_too_large_for_a_function(mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaging, "MAX_UNPACKED_BYTES", 100_000)
    with pytest.raises(BuildError, match=r"Code and libraries take \d\.\d MB unpacked; Lambda allows a function 250"):
        build(mine, tmp_path / "cache")
    (mine / "texts" / "large.bin").write_bytes(bytes(200_000))
    (mine / "texts" / "larger.bin").write_bytes(bytes(300_000))
    with pytest.raises(BuildError, match=r"files take 0\.5 MB .* largest: texts/larger.bin \(0\.3 MB\), texts/large"):
        build(mine, tmp_path / "cache")


def test_a_folder_for_a_pipeline(mine: Path, tmp_path: Path) -> None:
    (mine / "dynatick.toml").write_text(
        '[stack]\nname = "mine"\n[handlers]\nenvironment = { SENDER = "me" }\npolicies = ["AmazonSESFullAccess"]\n'
        "[parameters]\nShardCount = 2\n[stages.prod.parameters]\nShardCount = 4\n"
        '[stages.prod.handlers]\nsecrets = { KEY = "ssm:/prod/key" }\n'
    )
    body, files = written(mine, tmp_path / "out", "prod")
    assert body["Resources"]["ProcessorFunction"]["Properties"]["CodeUri"] == "ProcessorFunction.zip"
    assert body["Resources"]["DynatickLayer"]["Properties"]["ContentUri"] == "DynatickLayer.zip"
    assert {"ProcessorFunction.zip", "DynatickLayer.zip", "handlers.zip"} <= files
    pairs = json.loads((tmp_path / "out" / "parameters.json").read_text())
    assert {one["ParameterKey"]: one["ParameterValue"] for one in pairs} == {
        "ShardCount": "4",
        "HandlersModule": "handlers",
        "HandlersEnvironment": '{"SENDER": "me"}',
        "HandlersSecrets": '{"KEY": "ssm:/prod/key"}',
        "HandlersSecretArns": "arn:aws:ssm:*:*:parameter/prod/key",
        "HandlersPolicyArns": "arn:aws:iam::aws:policy/AmazonSESFullAccess",
    }


@pytest.mark.parametrize("to", ["out", "out/below"])
def test_a_file_is_no_folder_for_a_pipeline(mine: Path, tmp_path: Path, installed: list[list[str]], to: str) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(RefusedError, match=f"{to} can't be a folder: "):
        written(mine, tmp_path / to)
    assert (installed, (tmp_path / "out").read_text()) == ([], "mine")


@pytest.mark.parametrize(
    ("parameter", "said"),
    [
        ('Architecture = "x86"', "Architecture can't be x86. Allowed: arm64, x86_64"),
        ("TickMinutes = 7", "TickMinutes can't be 7"),
        ('ApiAuthorization = "JWT"', "ApiJwtIssuer"),
        ("WarmThroughput = 50000", "WarmThroughput can't be 50000: a table takes at most 40,000"),
    ],
)
def test_a_pipeline_gets_no_parameters_that_aws_refuses(
    mine: Path, tmp_path: Path, installed: list[list[str]], parameter: str, said: str
) -> None:
    (mine / "dynatick.toml").write_text(f'[stack]\nname = "mine"\n[parameters]\n{parameter}\n')
    with pytest.raises(RefusedError, match=re.escape(said)):
        written(mine, tmp_path / "out")
    assert not installed and not (tmp_path / "out").exists()


def test_a_pipeline_gets_no_handlers_with_which_the_processor_would_not_start(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def examine(project: object, say: object, files: object, parameters: dict[str, str]) -> Checked:
        assert parameters["TickMinutes"] == "1"
        raise HandlersError("handlers.py:1  SyntaxError: invalid syntax")

    monkeypatch.chdir(mine)
    monkeypatch.setattr(declared_schedules, "examine", examine)
    with pytest.raises(typer.Exit) as ended:
        release_commands.show_template(to=tmp_path / "out")
    assert ended.value.exit_code == 3 and not (tmp_path / "out").exists()


def test_a_cache_that_can_not_be_written_is_named(mine: Path, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder")
    with pytest.raises(StackError, match=r"home/cache/lock can't be written: "):
        build(mine, tmp_path / "home" / "cache")


def test_a_transformed_template_is_plain_cloudformation_with_all_parameters(mine: Path, tmp_path: Path) -> None:
    body, files = written(mine, tmp_path / "out", is_transformed=True)
    assert "Transform" not in body
    assert not [one["Type"] for one in body["Resources"].values() if "Serverless" in one["Type"]]
    assert body["Parameters"] == template.load()["Parameters"]
    # Each reference to a parameter is one still, so that it may have other values than the defaults.
    assert references(template.load()) - {"DynatickLayer"} <= references(body)
    retries = body["Resources"]["ProcessorFunctionEventInvokeConfig"]["Properties"]
    assert retries["MaximumEventAgeInSeconds"] == {"Fn::FindInMap": ["Tick", {"Ref": "TickMinutes"}, "QueueSeconds"]}
    named = {
        one["Properties"].get("Code", one["Properties"].get("Content"))
        for one in body["Resources"].values()
        if one["Type"] in ("AWS::Lambda::Function", "AWS::Lambda::LayerVersion")
    }
    assert named == {name for name in files if name.endswith(".zip")} - {"handlers.zip"}


def test_the_page_on_cdk_and_terraform_names_what_is_there(mine: Path, tmp_path: Path) -> None:
    """Neither runs here: CDK needs Node.js, Terraform its own program and provider."""
    page = (ROOT / "docs" / "how-to" / "cdk-and-terraform.md").read_text(encoding="utf-8")
    (mine / "dynatick.toml").write_text('[stack]\nname = "mine"\n[stages.prod]\n')
    body, files = written(mine, tmp_path / "build", "prod", is_transformed=True)
    by_aws_cloudformation_package = {"packaged.json"}
    assert set(re.findall(r"build/([\w.]+)", page)) - {"parameters"} <= files | by_aws_cloudformation_package
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        compile(block, "cdk-and-terraform.md", "exec")
    parameters = re.findall(r"parameters *= *{\W*(\w+)", page)
    assert len(parameters) == 3, "of each way"
    assert {*parameters, "HandlersLayerArn"} <= body["Parameters"].keys()
    assert set(re.findall(r'get_resource\("(\w+)"\)', page)) <= body["Resources"].keys()
    outputs = re.findall(r'Outputs\.(\w+)|outputs\["(\w+)"\]', page)
    assert len(outputs) == 2
    assert {name for pair in outputs for name in pair if name} <= body["Outputs"].keys()
    # With names of roles it would take CAPABILITY_NAMED_IAM.
    roles = [one for one in body["Resources"].values() if one["Type"].startswith("AWS::IAM::")]
    assert roles
    assert not [one for one in roles if "RoleName" in one["Properties"]]


def references(value: object) -> set[str]:
    if isinstance(value, dict):
        own = {value["Ref"]} if value.keys() == {"Ref"} else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()
