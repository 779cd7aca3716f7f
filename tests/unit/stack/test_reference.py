"""docs/reference is what code and template say now: what `make docs` writes, and what is written by hand."""

from __future__ import annotations

import json
import re

import pytest
from tests.unit.reference_page import described, text

from dynatick.actions.payload import check_payload, payload_schemas
from dynatick.api.document import text as openapi
from dynatick.domain.attributes import OWN_ATTRIBUTES, SCHEDULE_ATTRIBUTES
from dynatick.engine.counts import COUNTERS
from dynatick_stack import template
from dynatick_stack.markdown import part_names, with_parts
from dynatick_stack.reference.parts import FOLDER, PARTS


@pytest.mark.parametrize("page", PARTS)
def test_the_generated_parts_are_as_make_docs_writes_them(page: str) -> None:
    parts = PARTS[page]()
    assert with_parts(text(page), parts) == text(page), "run `make docs`"
    assert part_names(text(page)) == list(parts)


def test_what_help_says_of_each_command_and_option_is_a_sentence() -> None:
    said = re.findall(r"^\| (\[?`.*`.*?) \| (.*) \|$", text("cli.md"), re.MULTILINE)
    assert len(said) > 300
    assert [name for name, about in said if not about.endswith(".")] == []


def test_the_document_of_the_http_api_is_as_make_docs_writes_it() -> None:
    assert text("openapi.json") == openapi(), "run `make docs`"


def test_no_other_page_has_generated_parts() -> None:
    assert {path.name for path in FOLDER.glob("*.md") if part_names(text(path.name))} == PARTS.keys()


def test_every_attribute_is_described() -> None:
    tasks, schedules, indexes = described("attributes.md").values()
    assert sorted(tasks) == sorted(OWN_ATTRIBUTES)
    assert sorted(schedules) == sorted(SCHEDULE_ATTRIBUTES)
    of_table = template.load()["Resources"][template.TABLE]["Properties"]["GlobalSecondaryIndexes"]
    assert indexes == [index["IndexName"] for index in of_table]
    for index in of_table:
        (line,) = re.findall(rf"^\| `{index['IndexName']}` .*", text("attributes.md"), re.MULTILINE)
        keys = [key["AttributeName"] for key in index["KeySchema"]]
        assert re.findall(r"`([^`]+)`", line)[1:] == [*keys, *index["Projection"].get("NonKeyAttributes", ())]


def test_every_metric_is_described() -> None:
    *by_function, _alarms = [set(names) for names in described("metrics.md").values()]
    code = (template.ROOT / "shared" / "dynatick" / "observability.py").read_text(encoding="utf-8")
    assert set().union(*by_function) == {
        *(counter.metric for counter in COUNTERS if counter.metric is not None),
        *re.findall(r'(?:add|single)_metric\(name="(\w+)"', code),
        *re.findall(r'_count\(metrics, "(\w+)"', code),
        *re.findall(r'^        \("(\w+)", [a-z]+[.(]', code, re.MULTILINE),
    }


def test_every_action_is_described_and_its_example_fits() -> None:
    page, schemas = text("actions.md"), payload_schemas()
    assert described("actions.md")["Actions and their payloads"] == list(schemas)
    examples = {
        section.partition("\n")[0]: json.loads(example)
        for section in page.split("\n## ")[1:]
        for example in re.findall(r"```json\n(.*?)```", section, re.DOTALL)
    }
    assert examples.keys() == {name for name, schema in schemas.items() if "properties" in schema}
    for name, payload in examples.items():
        check_payload(name, payload)
    parameters = template.load()["Parameters"].keys()
    assert set(re.findall(r"Where to: `(\w+)`", page)) <= parameters


def test_a_part_takes_the_place_of_what_stood_there() -> None:
    page = (
        "a\n<!-- generated: x -->\nold\n<!-- /generated -->\nb\n<!-- generated: y -->\n\nkept\n\n<!-- /generated -->\n"
    )
    once = with_parts(page, {"x": "new"})
    assert once == page.replace("\nold\n", "\n\nnew\n\n")
    assert with_parts(once, {"x": "new"}) == once
    with pytest.raises(KeyError, match="z"):
        with_parts(page, {"z": "new"})
