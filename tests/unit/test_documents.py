"""The documents describe the code as it is."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import dynatick
from dynatick.domain.lifecycle import TRANSITIONS

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_table_of_transitions_is_the_codes() -> None:
    text = (ROOT / "docs" / "lifecycle.md").read_text(encoding="utf-8").split("<!-- transitions -->")[1]
    written = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (.+) \|$", text, re.MULTILINE)
    assert written == [
        (str(before), str(after), step.reason) for before, steps in TRANSITIONS.items() for after, step in steps.items()
    ]


def test_the_protocol_has_its_rules_and_the_code_cites_each() -> None:
    text = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)] == list(range(1, 25))
    folders = (ROOT / "shared" / "dynatick", ROOT / "functions")
    sources = [ROOT / "template.yaml", *(path for folder in folders for path in folder.rglob("*.py"))]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    cited = {
        int(number)
        for group in re.findall(r"\((?:protocol |rules? )?((?:\d{1,2}(?:, | to )?)+)(?:[:;][^)]*)?\)", code)
        for number in re.findall(r"\d+", group)
    } | {int(number) for number in re.findall(r"(?:protocol|rule) (\d{1,2})", code)}
    assert set(range(1, 25)) <= cited


def test_the_tour_stops_at_eight_functions_in_their_files() -> None:
    text = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    stops = re.findall(r"^\*\*\d\. `([\w.]+)`\*\* in `([\w/]+\.py)`", text, re.MULTILINE)
    assert len(stops) == 8
    others = re.findall(r"`([\w.]+)` in `([\w/]+\.py)`", text)
    for name, file in [*stops, *others]:
        scope: ast.Module | ast.stmt = ast.parse((ROOT / "shared" / "dynatick" / file).read_text(encoding="utf-8"))
        for part in name.split("."):
            assert isinstance(scope, (ast.Module, ast.ClassDef)), name
            named = [node for node in scope.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
            scope = next(node for node in named if node.name == part)


def anchors(document: Path) -> set[str]:
    """Returns the anchors of its headings, as GitHub makes them: the second of a name gets a number."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found: Counter[str] = Counter()
    made: set[str] = set(re.findall(r'<a (?:name|id)="([^"]+)"', text))
    for title in re.findall(r"^#{1,6} (.+?) *$", text, re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        made.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return made


def test_the_public_surface() -> None:
    """Anyone who adds a name here promises to keep it."""
    assert sorted(dynatick.__all__) == [
        "AsyncTaskClient", "BatchDiffers", "BatchNotFound", "BatchView", "Bucket", "Commit",
        "CompleteLater", "CompletionRefused", "ConfigurationError", "DynatickError", "Exists", "Grid", "HandlerContext",
        "Health", "HistoryPage", "InsertCounts", "InsertUnknown", "Inserted", "InvalidInput", "ItemTooLarge",
        "MemoryStore", "NewTask", "NoneInserted", "PermanentError", "Refused", "Reschedule", "RetryPolicy",
        "RetryPolicyRow", "RetryableError", "ScheduleDiffers", "ScheduleNotFound", "ScheduleOccurrence", "ScheduleView",
        "Status", "StoreError", "TaskChanged", "TaskClient", "TaskEntry", "TaskExists", "TaskFunction", "TaskNotFound",
        "TaskRow", "TaskView", "TransitionRefused", "Unassigned", "around", "declared_schedules", "secret", "task",
        "use_client",
    ]  # fmt: skip
    for name in dynatick.__all__:
        assert getattr(dynatick, name).__name__ == name


def test_every_link_of_the_documents_leads_to_a_file_and_to_a_place_in_it() -> None:
    wrong, places = [], 0
    for document in DOCUMENTS:
        text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"`[^`\n]*`", "", text)  # code may look like a link
        for target, place in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", text):
            where = document.parent / target if target else document
            places += bool(place)
            if "://" not in target and (not where.exists() or (place and place not in anchors(where))):
                wrong.append(f"{document.name} links to {target}#{place}")
    assert wrong == []
    assert places


def test_every_module_that_a_document_names_exists() -> None:
    packages = "|".join(
        path.name for path in (ROOT / "shared" / "dynatick").iterdir() if (path / "__init__.py").is_file()
    )
    named = {
        (document.name, module)
        for document in DOCUMENTS
        for module in re.findall(rf"`((?:{packages})/[\w/]+\.py)`", document.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert [one for one in named if not (ROOT / "shared" / "dynatick" / one[1]).is_file()] == []
