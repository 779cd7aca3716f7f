"""Every example of the documents is run by a test, or is named here with the reason why none does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynatick_stack import init, project

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = "text"  # what is printed, or needs what only its reader has
HERE = "tests/unit/test_examples.py"
DOCUMENTS = "tests/e2e/test_docs.py"
HOW_TOS = "tests/e2e/test_how_tos.py"

RUN_BY = {
    "README.md": [DOCUMENTS],
    "docs/guarantees.md": ["tests/unit/test_guarantees.py"],
    "docs/how-to/access.md": ["tests/integration/test_least_privilege.py"],
    "docs/how-to/assignment.md": [HOW_TOS],
    "docs/how-to/async.md": ["tests/unit/client/test_async_tasks.py"],
    "docs/how-to/batches.md": ["tests/unit/client/test_batches.py", "tests/unit/cli/test_batch.py"],
    "docs/how-to/burst.md": ["tests/unit/cli/test_plan.py"],
    "docs/how-to/celery.md": ["tests/frameworks/test_celery.py"],
    "docs/how-to/complete-later.md": ["tests/unit/engine/test_completions.py"],
    "docs/how-to/coming-from.md": ["tests/unit/cli/test_coming_from.py"],
    "docs/how-to/dashboard.md": ["tests/unit/cli/test_ui.py"],
    "docs/how-to/declared-schedules.md": ["tests/unit/cli/test_schedule_sync.py"],
    "docs/how-to/deploy.md": ["tests/e2e/test_deploy_page.py"],
    "docs/how-to/django.md": ["tests/frameworks/test_django.py"],
    "docs/how-to/existing.md": ["tests/unit/test_task_function.py", "tests/unit/cli/test_commands.py"],
    "docs/how-to/fastapi.md": ["tests/frameworks/test_fastapi.py"],
    "docs/how-to/follow-ups.md": ["tests/unit/actions/test_follow_ups.py"],
    "docs/how-to/handlers.md": ["tests/unit/actions/test_docs.py"],
    "docs/how-to/http-api.md": [HOW_TOS],
    "docs/how-to/import.md": [HOW_TOS],
    "docs/how-to/limits-by-key.md": ["tests/unit/client/test_limit_keys.py"],
    "docs/how-to/nightly-report.md": [HOW_TOS],
    "docs/how-to/outcome-events.md": ["tests/unit/test_outcome_events_page.py"],
    "docs/how-to/operate.md": ["tests/unit/test_operate.py"],
    "docs/how-to/reminder-by-email.md": [HOW_TOS],
    "docs/how-to/testing.md": ["tests/unit/test_testing.py"],
    "docs/how-to/to-the-second.md": [HOW_TOS],
    "docs/how-to/traces.md": ["tests/unit/test_tracing.py"],
    "docs/how-to/commit.md": ["tests/unit/engine/test_commit.py"],
    "docs/how-to/transactions.md": ["tests/unit/client/test_transact_put.py"],
    "docs/how-to/unpublish-by-webhook.md": [HOW_TOS],
    "docs/how-to/webhooks.md": ["tests/unit/actions/test_docs.py"],
    "docs/questions.md": ["tests/unit/test_questions.py"],
    "docs/quickstart.md": [DOCUMENTS],
    "docs/schedules.md": [DOCUMENTS, "tests/unit/cli/test_expr.py"],
    "docs/tutorial.md": ["tests/newcomer.py", HERE],
}
NOT_RUN = {
    "docs/how-to/cdk-and-terraform.md": "CDK needs Node.js and was tried by hand, Terraform was not: the page says so. "
    "tests/unit/stack/test_packaging.py holds the names that it uses",
    "docs/performance.md": "make bench takes minutes; tests/unit/stack/test_bench_documents.py holds its figures",
    "docs/proof.md": "make prove takes minutes, and needs Spin; tests/unit/test_proof.py holds its rules",
    "docs/simulation.md": "make simulate takes minutes; the tests in tests/simulate run smaller ones",
    "docs/reference/actions.md": "tests/unit/stack/test_reference.py checks its payloads",
}


def pages() -> Iterator[tuple[str, set[str]]]:
    """Yields each page with the languages of its examples."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        found = {language for language, _ in BLOCK.findall(path.read_text(encoding="utf-8"))} - {SHOWN}
        if found:
            yield path.relative_to(ROOT).as_posix(), found


def test_every_page_with_examples_is_run_or_says_why_not() -> None:
    assert {page for page, _ in pages()} == RUN_BY.keys() | NOT_RUN.keys()
    assert not RUN_BY.keys() & NOT_RUN.keys()


@pytest.mark.parametrize(("page", "tests"), RUN_BY.items())
def test_the_tests_of_a_page_name_it(page: str, tests: list[str]) -> None:
    for test in tests:
        text = (ROOT / test).read_text(encoding="utf-8")
        assert Path(page).name in text or f'"{Path(page).stem}"' in text, f"{test} does not name {page}"


def test_the_tutorial_shows_what_init_writes_and_settings_that_are_accepted(tmp_path: Path) -> None:
    shown = dict(BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")))
    assert shown["python"] == init.HANDLERS
    (tmp_path / "dynatick.toml").write_text(shown["toml"])
    (tmp_path / "requirements.txt").touch()
    found = project.read(tmp_path)
    assert (found.name, found.module) == ("reminders", "handlers")
    assert found.parameters == {"TickMinutes": "5"}
