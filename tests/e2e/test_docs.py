"""The README and the guides work as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.documents import ELSEWHERE, ROOT, blocks, is_elsewhere, run

pytestmark = pytest.mark.long

DOCUMENTS = ["README.md", "docs/quickstart.md", "docs/schedules.md"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_commands_of_a_document_work(document: str, tmp_path: Path) -> None:
    run(document, tmp_path)


def test_what_is_run_elsewhere_is_run_there() -> None:
    named = {
        line
        for document in DOCUMENTS
        for language, text in blocks(document)
        if is_elsewhere(language, text)
        for line in text.strip().splitlines()
    }
    assert named == set(ELSEWHERE), "ELSEWHERE names what no document has"
    for command in named:
        where = (ROOT / ELSEWHERE[command]).read_text(encoding="utf-8")
        assert command in where, f"{ELSEWHERE[command]} doesn't run {command}"
