"""Limits by key as they are written, and the keys that they are about."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from dynatick.domain.limit_keys import KeyLimit, check_limit_key, class_of, parse_limits
from dynatick.errors import ConfigurationError, InvalidInput
from dynatick_stack.template import load

LIMITS = parse_limits(["customer=1", "host=4:10/s", "mail=100/m"])


def test_a_class_has_a_number_at_once_a_rate_or_both() -> None:
    assert {
        "customer": KeyLimit(1, timedelta(), "1"),
        "host": KeyLimit(4, timedelta(milliseconds=100), "4:10/s"),
        "mail": KeyLimit(None, timedelta(milliseconds=600), "100/m"),
    } == LIMITS
    assert parse_limits([]) == {}
    assert parse_limits(["a=3/s"])["a"].interval == timedelta(microseconds=333_334), "never above the rate"
    assert parse_limits(["a=1/h"])["a"].interval == timedelta(hours=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("customer", "'customer' is not a limit; expected one such as customer=1, host=4:10/s or mail=100/m"),
        ("customer=", "'customer=' is not a limit"),
        ("customer=0", "'customer=0' is not a limit"),
        ("customer=:1/s", "'customer=:1/s' is not a limit"),
        ("customer=1:", "'customer=1:' is not a limit"),
        ("customer=1/d", "'customer=1/d' is not a limit"),
        ("customer=1:0/s", "'customer=1:0/s' is not a limit"),
        ("4=1", "'4=1' is not a limit"),
        ("=1", "'=1' is not a limit"),
        ("a:b=1", "'a:b=1' is not a limit"),
        ("customer= 1", "'customer= 1' is not a limit"),
        ("customer=10001", "'customer=10001' is more at once than 10000"),
    ],
)
def test_what_is_no_limit_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^KeyLimits: {re.escape(expected)}"):
        parse_limits([text])


def test_a_class_has_one_limit() -> None:
    with pytest.raises(ConfigurationError, match=r"^DYNATICK_KEY_LIMITS: the class customer is there twice"):
        parse_limits(["customer=1", "host=1", "customer=2"], "DYNATICK_KEY_LIMITS")


@pytest.mark.parametrize(
    "text",
    ["", "customer=1", "host=4:10/s", "mail=100/m", "customer=1,host=4:10/s", "a=10000", "a=10001", "a=0", "a=1:0/s",
     "a=", "a=:1/s", "a=1:", "a=1/d", "4=1", "a=1,", ",a=1", "a=1, b=1", "a=999999/h", "a=1000000/h", "a:b=1"],
)  # fmt: skip
def test_the_template_takes_what_the_functions_take(text: str) -> None:
    pattern = load()["Parameters"]["KeyLimits"]["AllowedPattern"]
    try:
        parse_limits(text.split(",") if text else [])
    except ConfigurationError:
        assert not re.fullmatch(pattern, text)
    else:
        assert re.fullmatch(pattern, text)


@pytest.mark.parametrize("key", ["customer:4711", "customer:a:b", "customer::", "host:größe ß", "mail:" + "ä" * 125])
def test_a_key_is_a_class_a_colon_and_what_is_limited(key: str) -> None:
    assert check_limit_key(key) == check_limit_key(key, LIMITS) == key
    assert class_of(key) in LIMITS


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (4711, "4711 is not accepted; expected text such as customer:4711"),
        ("", "'' is not accepted; expected a class, a colon and what is limited: customer:4711"),
        ("customer", "'customer' is not accepted; expected a class, a colon"),
        ("customer:", "'customer:' is not accepted; expected a class, a colon"),
        (":4711", "':4711' is not accepted; expected a class, a colon"),
        ("customer:a\n", "expected a class, a colon"),
        ("customer:" + "ä" * 124, "expected at most 256 bytes in UTF-8, this has 257"),
    ],
)
def test_any_other_value_is_no_key(key: object, expected: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(expected)) as refused:
        check_limit_key(key)
    assert refused.value.field == "limitKey"


def test_an_unknown_class_is_refused_where_the_classes_are_known() -> None:
    assert check_limit_key("tenant:1", None) == "tenant:1"
    known = "limitKey: 'tenant:1' is not accepted; expected a class of the parameter KeyLimits: "
    with pytest.raises(InvalidInput, match=re.escape(known + "the classes are customer, host, mail")):
        check_limit_key("tenant:1", LIMITS)
    with pytest.raises(InvalidInput, match=re.escape(known + "there are no classes")):
        check_limit_key("tenant:1", {})
