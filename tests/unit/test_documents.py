"""What the documents say of the code is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import dynatick
from dynatick.domain.lifecycle import TRANSITIONS

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_table_of_transitions_is_the_codes() -> None:
    text = (ROOT / "docs" / "lifecycle.md").read_text(encoding="utf-8").split("<!-- transitions -->")[1]
    written = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (.+) \|$", text, re.MULTILINE)
    assert written == [
        (str(before), str(after), reason) for before, steps in TRANSITIONS.items() for after, reason in steps.items()
    ]


def test_the_protocol_has_its_sixteen_rules_and_the_code_cites_each() -> None:
    text = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)] == list(range(1, 17))
    sources = [
        *(ROOT / "shared" / "dynatick").rglob("*.py"),
        *(ROOT / "functions").rglob("*.py"),
        ROOT / "template.yaml",
    ]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    cited = {
        int(number)
        for group in re.findall(r"\((?:protocol |rules? )?((?:\d{1,2}(?:, | to )?)+)(?:[:;][^)]*)?\)", code)
        for number in re.findall(r"\d+", group)
    } | {int(number) for number in re.findall(r"(?:protocol|rule) (\d{1,2})", code)}
    assert set(range(1, 17)) <= cited


def test_every_link_within_the_documents_leads_somewhere() -> None:
    for document in DOCUMENTS:
        text = re.sub(r"`[^`\n]*`", "", document.read_text(encoding="utf-8"))  # code may look like a link
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_public_surface() -> None:
    """Whoever adds a name here promises to keep it."""
    assert sorted(dynatick.__all__) == [
        "Bucket", "DynatickError", "Exists", "Failed", "Grid", "HandlerContext", "Inserted", "InvalidInput",
        "MemoryStore", "PermanentError", "Refused", "RetryPolicy", "RetryableError", "ScheduleNotFound",
        "TaskChanged", "TaskClient", "TaskExists", "TaskNotFound", "TransitionRefused", "Unassigned", "handler",
    ]  # fmt: skip
    for name in dynatick.__all__:
        assert getattr(dynatick, name).__name__ == name
