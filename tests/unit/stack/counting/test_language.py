"""Expressions and PartiQL, as Dynatick writes them; and that nothing is guessed."""

from __future__ import annotations

from typing import Any

import pytest

from dynatick_stack.counting.errors import Refused
from dynatick_stack.counting.language import parse_condition, parse_statement, parse_update

ITEM: dict[str, Any] = {"taskId": {"S": "t"}, "status": {"S": "scheduled"}, "attempt": {"N": "1"}, "n": {"NULL": True}}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("attribute_exists (taskId)", True),
        ("attribute_not_exists (outcome)", True),
        ("attribute_not_exists (taskId)", False),
        ("(attribute_exists (#0) AND #1 = :0)", True),
        ("attribute_exists (taskId) AND (#1 <> :0)", False),
        ("NOT #1 = :0", False),
        ("NOT (#1 = :0) OR attempt >= :1", True),
        ("attempt < :1", False),
        ("attempt BETWEEN :1 AND :2", True),
        ("attribute_type (n, :3)", True),
        ("attribute_not_exists (outcome) OR attribute_type (outcome, :3)", True),
        ("begins_with (#1, :4)", True),
        ("begins_with (outcome, :4)", False),
        ("size (#1) > :2", True),
        ("contains (#1, :4)", True),
        ("attempt > :0", False),  # of another type
        ("outcome = :0", False),  # absent
        ("outcome <> :0", True),
    ],
)
def test_a_condition(text: str, holds: bool) -> None:
    values = {":0": {"S": "scheduled"}, ":1": {"N": "1.0"}, ":2": {"N": "2"}, ":3": {"S": "NULL"}, ":4": {"S": "sch"}}
    condition, _ = parse_condition(text, (("#0", "taskId"), ("#1", "status")))
    assert condition(ITEM, values) is holds


def test_what_a_condition_demands_to_be_equal() -> None:
    def demanded(text: str) -> set[str]:
        return set(parse_condition(text, ())[1])

    assert demanded("a = :a AND b = :b AND c > :c") == {"a", "b"}
    assert demanded("a = :a AND (b = :b OR c = :c)") == {"a"}
    assert demanded("a = :a OR b = :b") == set()
    assert demanded("NOT a = :a") == set()


def test_an_update_takes_all_values_from_before() -> None:
    update = parse_update("SET a = b, b = :x, attempt = attempt + :one REMOVE n", ())
    item = {"b": {"S": "old"}, "attempt": {"N": "9"}, "n": {"S": "x"}}
    assert update.apply(item, {":x": {"S": "new"}, ":one": {"N": "1"}}) == {
        "a": {"S": "old"},
        "b": {"S": "new"},
        "attempt": {"N": "10"},
    }
    assert item["b"] == {"S": "old"}


def test_an_update_of_what_is_not_there_is_refused() -> None:
    with pytest.raises(Refused):
        parse_update("SET attempt = attempt + :one", ()).apply({}, {":one": {"N": "1"}})


def test_a_claim() -> None:
    statement = parse_statement(
        'UPDATE "tasks" SET "status"=?, "attempt"=attempt+1 REMOVE "error" '
        'WHERE "taskId"=? AND "status"=? AND "attempt">=0 AND "outcome" IS MISSING RETURNING ALL NEW *'
    )
    assert (statement.verb, statement.table, statement.returning) == ("update", "tasks", "all new")
    values = [{"S": "running"}, {"S": "t"}, {"S": "scheduled"}]
    assert statement.where is not None
    assert statement.where(ITEM, values)
    assert not statement.where(ITEM | {"outcome": {"S": "failed"}}, values)
    assert statement.equal["taskId"]({}, values) == {"S": "t"}
    changed = statement.update.apply(ITEM, values)
    assert changed["status"] == {"S": "running"}
    assert changed["attempt"] == {"N": "2"}


def test_an_insert_with_names_that_need_quotes() -> None:
    statement = parse_statement("INSERT INTO \"tasks\" VALUE {'taskId':?, 'it''s':?}")
    assert statement.names == ("taskId", "it's")
    assert [value({}, [{"S": "t"}, {"N": "1"}]) for value in statement.values] == [{"S": "t"}, {"N": "1"}]


@pytest.mark.parametrize(
    "text",
    [
        'UPDATE "tasks" SET "a"=? WHERE "taskId"=? LIMIT 1',
        'UPDATE "tasks" SET "a"."b"=? WHERE "taskId"=?',
        'UPDATE "tasks" WHERE "taskId"=?',
        'UPDATE "tasks" SET "a"=? WHERE "taskId"=? AND',
        'DROP TABLE "tasks"',
        'SELECT a FROM "tasks" WHERE "taskId"=?',
        'UPDATE "tasks" SET a=? WHERE likes("taskId", \'x\')',
        'UPDATE "tasks" SET a=\'',
    ],
)
def test_what_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        statement = parse_statement(text)
        if statement.where is not None:
            statement.where(ITEM, [{"S": "x"}, {"S": "t"}])
