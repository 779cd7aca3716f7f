"""A row's values as plain Python and as JSON, and the results that are recorded."""

import json
import re
from collections.abc import Mapping
from decimal import Decimal

import pytest
from boto3.dynamodb.types import Binary
from hypothesis import example, given
from hypothesis import strategies as st

from dynatick.actions.plain_value import MAX_RESULT_BYTES, kept_result, plain, to_json
from dynatick.store.codec import decode, encode

DEEP: list[object] = []
for _ in range(200):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (Decimal("3.0"), 3),
        (Decimal("-0"), 0),
        (Decimal("1E+125"), 10**125),
        (Decimal("12345678901234567890123456789012345678"), 12345678901234567890123456789012345678),
        (Decimal("0.1"), 0.1),
        (Decimal("1E-130"), 1e-130),
        (Binary(b"\x00\xff"), b"\x00\xff"),
        (bytearray(b"x"), b"x"),
        ({"a": [Decimal("1"), {"b": Binary(b"c")}]}, {"a": [1, {"b": b"c"}]}),
        ({Decimal("1"), Decimal("2.5")}, {1, 2.5}),
        ({Binary(b"x")}, {b"x"}),
        (("a", "b"), ["a", "b"]),
    ],
)
def test_plain(value, expected):
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "a object is not a value that a row can hold"),
        ({"a": object()}, "a object is not a value"),
        (Decimal("NaN"), "NaN is not a number that a row can hold"),
        (Decimal("Infinity"), "Infinity is not a number"),
        ({("a", "b")}, "a set holds what no set of a row can hold"),
        (DEEP, "nested more than 100 deep"),
    ],
)
def test_plain_refuses(value, message):
    with pytest.raises(ValueError, match=message):
        plain(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"n": Decimal("1"), "f": Decimal("1.5")}, '{"n":1,"f":1.5}'),
        (Binary(b"\x00\xff"), '"AP8="'),
        ({"b", "a", "c"}, '["a","b","c"]'),
        ({Decimal("10"), Decimal("9"), Decimal("9.5")}, "[9,9.5,10]"),
        ({Binary(b"b"), Binary(b"a")}, '["YQ==","Yg=="]'),
        ({None, 1, "a"}, '[null,1,"a"]'),
        ("é\x00\ufffe", '"\\u00e9\\u0000\\ufffe"'),
    ],
)
def test_to_json(value, expected):
    assert to_json(value) == expected


@pytest.mark.parametrize("value", [float("nan"), object(), DEEP])
def test_to_json_refuses(value):
    with pytest.raises(ValueError):
        to_json(value)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (None, None),
        (True, True),
        ({"count": Decimal("2"), "when": (1, 2)}, {"count": 2, "when": [1, 2]}),
        (b"ab", "YWI="),
        (10**125, 10**125),
        (10**37 + 1, 10**37 + 1),
        (int("9" * 38) * 10**88, int("9" * 38) * 10**88),
        (-0.0, 0),
        (9.99e125, 9.99e125),
        (-1e-130, -1e-130),
    ],
)
def test_results_that_are_kept(result, expected):
    assert kept_result(result) == expected


class Detached(dict):
    def items(self):
        raise LookupError("the session is closed")


class Lazy(Mapping):
    def __getitem__(self, name):
        raise LookupError("the session is closed")

    def __iter__(self):
        return iter(["id"])

    def __len__(self):
        return 1


class Managed:
    @property
    def value(self):
        raise RuntimeError("its manager has ended")


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (object(), "a object that JSON cannot hold"),
        (Detached(id=1), "a Detached that JSON cannot hold"),
        (Lazy(), "a Lazy that JSON cannot hold"),
        ([Managed()], "a list that JSON cannot hold"),
        ({"at": float("nan")}, "a dict that JSON cannot hold"),
        (DEEP, "a list that JSON cannot hold"),
        ("\ud800", "a str that JSON cannot hold"),
        ("é" * (MAX_RESULT_BYTES // 2), "4098 bytes, more than 4096"),
        ({"": 1}, "a name in it is empty"),
        ([[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]], "nested more than 20 deep"),
        ({"n": 10**38 + 1}, "the number 1000"),
        (1e300, "the number 1e\\+300 does not fit a row"),
        (-1e-200, "the number -1e-200 does not fit a row"),
        (10**126, "the number 1000"),
        (5e-324, "the number 5e-324 does not fit a row"),
        ([10**5000], "a list that JSON cannot hold"),
    ],
)
def test_results_that_are_replaced_by_a_note(result, reason):
    kept = kept_result(result)
    assert list(kept) == ["note"]
    assert len(kept["note"]) < 300
    assert re.match(f"the result was not kept: {reason}", kept["note"])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
)


# Drawn at random once: 36 digits and zeros. boto3's own serializer counts the zeros, and refuses it.
@example(119080782166103530230966117464014848000)
@given(json_values)
def test_whatever_is_kept_can_be_written_to_a_row(result):
    kept = kept_result(result)
    written = json.loads(json.dumps(kept), parse_float=Decimal, parse_int=Decimal)
    assert decode(encode({"result": kept})) == {"result": written}
    assert len(json.dumps(kept, ensure_ascii=False).encode()) <= MAX_RESULT_BYTES
