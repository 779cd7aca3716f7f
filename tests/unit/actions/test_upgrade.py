"""Old payloads: told apart from present ones, upgraded when their task runs, accepted where tasks are inserted."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from tests.builders import NOON
from tests.unit.actions.support import a_context, a_task

from dynatick import ConfigurationError, InvalidInput, PermanentError, task
from dynatick.actions.handlers import Handler
from dynatick.actions.payload_schema import check_schema
from dynatick.testing import VirtualInstallation


@dataclass
class OldMail:
    to: str
    text: str = ""


@dataclass
class Mail:
    to: str
    body: str = ""
    fails: int = 0


def renamed(old: OldMail) -> Mail:
    if old.text == "unknowable":
        raise LookupError("no such template")
    return Mail(old.to, old.text)


@task("mail", upgrade=renamed, permanent=LookupError)
def mail(present: Mail) -> str:
    return f"{present.to}: {present.body}"


class Priced(BaseModel):
    """The present form has the same fields as the older ones, so each names its version."""

    version: Literal[3] = 3
    price: int  # in cents


class PricedInEuros(BaseModel):
    version: Literal[2]
    price: float


class PricedInText(BaseModel):
    version: Literal[1] = 1
    price: str


def in_cents(old: PricedInEuros | PricedInText) -> dict[str, Any]:
    return {"price": round(100 * float(old.price))}


@task("charge", upgrade=in_cents)
def charge(order: Priced) -> int:
    return order.price


def run(function: Any, payload: dict[str, Any]) -> object:
    handler = Handler("x", function, (LookupError,), upgrade=function.__dynatick_handler__.upgrade)
    one = a_task(payload)
    return handler.run(one, a_context(one))


@pytest.mark.parametrize(("function", "payload", "result"), [
    (mail, {"to": "ann", "body": "hi"}, "ann: hi"),
    (mail, {"to": "ann", "text": "hi"}, "ann: hi"),  # an optional field under its older name
    (mail, {"to": "ann"}, "ann: "),  # fits both
    (mail, {"to": "ann", "body": "hi", "lost": 1}, "ann: hi"),  # of a field that neither type has any more
    (charge, {"version": 3, "price": 150}, 150),
    (charge, {"price": 150}, 150),
    (charge, {"version": 2, "price": 1.5}, 150),
    (charge, {"version": 1, "price": "1.5"}, 150),
])  # fmt: skip
def test_a_present_payload_stays_and_an_old_one_is_upgraded(
    function: Any, payload: dict[str, Any], result: object
) -> None:
    assert run(function, payload) == result


def test_what_is_of_neither_type_is_refused_by_the_present_one() -> None:
    with pytest.raises(PermanentError, match=r"^payload\.to: it is missing$"):
        run(mail, {"text": "hi"})


def wrong(old: OldMail) -> dict[str, object]:
    return {"to": old.to, "fails": old.text}


@task("wrong", upgrade=wrong)
def wrongly(present: Mail) -> None: ...


def test_an_upgrade_may_fail_as_a_handler_does() -> None:
    with pytest.raises(PermanentError, match=r"no such template"):
        run(mail, {"to": "ann", "text": "unknowable"})
    with pytest.raises(PermanentError, match=r"^upgraded payload\.fails: Input should be a valid integer"):
        run(wrongly, {"to": "ann", "text": "many"})


def test_what_is_no_upgrade_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ConfigurationError, match="handler x: has as its upgrade a str; expected a function of the old"):
        task("x", upgrade="renamed")  # type: ignore[arg-type]
    anything: Any = lambda payload: None  # noqa: E731
    with pytest.raises(ConfigurationError, match="has an upgrade, and takes any payload; annotate its payload"):
        Handler("x", anything, upgrade=renamed)


def anything(old: dict[str, object]) -> Mail:
    return Mail(str(old.get("address") or old["to"]))


@task("any", upgrade=anything)
def of_any(present: Mail) -> str:
    return present.to


@pytest.mark.parametrize(("function", "payload", "fits"), [
    (mail, {"to": "ann", "body": "hi"}, True), (mail, {"to": "ann", "text": "hi"}, True),
    (mail, {"to": "ann", "txt": "hi"}, False), (mail, {"to": "ann", "text": "hi", "body": "hi"}, False),
    (of_any, {"to": "ann"}, True), (of_any, {"address": "ann"}, True),
])  # fmt: skip
def test_interfaces_accept_both_types_and_refuse_the_rest_in_the_words_of_the_present_one(
    function: Any, payload: dict[str, Any], fits: bool
) -> None:
    schema = Handler("x", function, upgrade=function.__dynatick_handler__.upgrade).payload_schema()
    if fits:
        assert schema is None or check_schema(schema, payload) is None  # type: ignore[func-returns-value]
        assert run(function, payload)
        return
    assert schema is not None
    with pytest.raises(InvalidInput, match="unknown; expected any of to, body, fails"):
        check_schema(schema, payload)


def test_the_testing_kit_inserts_what_an_earlier_version_left() -> None:
    with VirtualInstallation(sys.modules[__name__], start=NOON) as virtual:
        virtual.client.insert("in both", action="mail", payload={"to": "ann", "text": "hi"}, due_at=NOON)
        with pytest.raises(InvalidInput):
            virtual.client.insert("misspelt", action="mail", payload={"to": "ann", "txt": "hi"})
        old = virtual.insert_unchecked(mail, {"address": "ann"}, task_id="older", due_at=NOON + timedelta(days=40))
        assert (old.task_id, old.payload) == ("older", {"address": "ann"})
        virtual.insert_unchecked("mail", {"to": "bob", "text": "hello"})
        virtual.advance(days=41)
        assert [(one.payload, one.result) for one in virtual.executed_of(mail) if one.outcome == "completed"] == [
            (Mail("ann", "hi"), "ann: hi"), (Mail("bob", "hello"), "bob: hello"),
        ]  # fmt: skip
        assert virtual.task("older").status == "failed"
        with pytest.raises(InvalidInput, match="expected a task function, or one of"):
            virtual.insert_unchecked("none", {})
