"""Parsing of expressions, and the errors for invalid ones."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.expressions import generator

from dynatick.domain.expressions import parse_expression
from dynatick.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        *((text, text) for text in ("rate(1 minute)", "rate(36 hours)", "rate(1 day)", "at(2028-02-29T23:59:59)")),
        ("rate(  7   days )", "rate(7 days)"),
        ("cron(0 12 * * ?)", "cron(0 12 * * ? *)"),  # the year may be left out
        ("cron(0 12 ? * MON-FRI)", "cron(0 12 ? * MON-FRI *)"),
        ("cron( 00  05 ?\t* mon-fri 2026 )", "cron(0 5 ? * MON-FRI 2026)"),
        ("cron(*/15 0/2 1-7/2 JAN,jul ? 2026-2030/2)", "cron(*/15 0/2 1-7/2 JAN,JUL ? 2026-2030/2)"),
        ("cron(0 0 lw * ? *)", "cron(0 0 LW * ? *)"),
        ("cron(0 0 001 1 ? *)", "cron(0 0 1 1 ? *)"),
    ],
)
def test_an_expression_is_normalised(text: str, canonical: str) -> None:
    expression = parse_expression(text)
    assert expression.text == canonical
    assert parse_expression(canonical) == expression


REFUSED: dict[str, list[str]] = {
    # no form at all
    "expected rate(5 minutes), at(2026-12-31T12:00:00) or cron(0 12 * * ? *)": ["", "tomorrow", "rate"],
    "white space around it; write rate(5 minutes)": [" rate(5 minutes)", "rate(5 minutes)\n"],
    "small letters, without a space; write rate(5 minutes)": ["Rate(5 minutes)", "rate (5 minutes)"],
    "the closing bracket is missing or something follows it": ["rate(5 minutes", "rate(5 minutes);"],
    "at most 256 characters": ["cron(" + "0" * 300 + ")"],
    # rate
    "at character 6: a rate is a number and a unit": ["rate()", "rate(5)", "rate(5minutes)", "rate(5 minutes 3 hours)"],
    "at character 6: '0' is not a whole number from 1 on": ["rate(0 minutes)"],
    "at character 6: '٣' is not a whole number from 1 on": ["rate(٣ minutes)"],
    "at character 8: 1 goes with 'minute'; write rate(1 minute)": ["rate(1 minutes)"],
    "at character 8: 5 goes with 'minutes'; write rate(5 minutes)": ["rate(5 minute)"],
    "at character 9: 'seconds' is not one of minute, minutes, hour": ["rate(10 seconds)"],
    "at character 6: that is longer than a hundred years": ["rate(36526 days)"],
    # at
    "at character 4: expected yyyy-mm-ddThh:mm:ss": ["at()", "at(2026-12-31)", "at(2026-12-31 12:00:00)"],
    "without an offset: scheduleExpressionTimezone has the zone": ["at(2026-12-31T12:00:00Z)"],
    "at character 4: there is no such time": ["at(2026-02-29T12:00:00)", "at(2026-12-31T24:00:00)"],
    "at character 4: the year is not from 1970 to 2199": ["at(1969-12-31T00:00:00)", "at(2200-01-01T00:00:00)"],
    # the fields of a cron
    "there are 4 fields, where six are expected": ["cron(0 12 * *)"],
    "at character 19: there are 7 fields, where six are expected": ["cron(0 12 * * ? * 7)"],
    "at character 15: day-of-month and day-of-week are both given": ["cron(0 12 * * * *)"],
    "at character 15: day-of-month and day-of-week are both '?'": ["cron(0 12 ? * ? *)"],
    "at character 6: minutes: 60 is not from 0-59": ["cron(60 12 * * ? *)"],
    "at character 8: hours: 24 is not from 0-23": ["cron(0 24 * * ? *)"],
    "at character 11: day-of-month: 0 is not from 1-31": ["cron(0 12 0 * ? *)", "cron(0 12 0W * ? *)"],
    "at character 11: day-of-month: 32 is not from 1-31": ["cron(0 12 32 * ? *)", "cron(0 12 32W * ? *)"],
    "at character 13: month: 0 is not from 1-12 or JAN-DEC": ["cron(0 12 * 0 ? *)"],
    "at character 13: month: 13 is not from 1-12 or JAN-DEC": ["cron(0 12 * 13 ? *)"],
    "at character 15: day-of-week: 0 is not from 1-7 or SUN-SAT (1 is Sunday, 7 Saturday)": ["cron(0 12 ? * 0 *)"],
    "at character 15: day-of-week: 8 is not from 1-7 or SUN-SAT": ["cron(0 12 ? * 8 *)", "cron(0 12 ? * 8L *)"],
    "at character 17: year: 1969 is not from 1970-2199": ["cron(0 12 * * ? 1969)"],
    "at character 17: year: 2200 is not from 1970-2199": ["cron(0 12 * * ? 2200)"],
    "at character 17: year: the range 2030-2026 ends before it begins": ["cron(0 12 * * ? 2030-2026)"],
    "at character 8: minutes: '0' is not a step": ["cron(0/0 12 * * ? *)", "cron(*/0 12 * * ? *)"],
    "at character 8: minutes: '' is not a step": ["cron(0/ 12 * * ? *)"],
    "at character 8: minutes: a step of 60 goes beyond the field (0-59)": ["cron(0/60 * * * ? *)"],
    "at character 8: minutes: a value is missing; expected 0-59": ["cron(1, 12 * * ? *)", "cron(1- 12 * * ? *)"],
    "at character 8: minutes: '2-3' is not understood": ["cron(1-2-3 12 * * ? *)"],
    "at character 6: minutes: '*' is not understood": ["cron(*-5 12 * * ? *)"],
    "at character 6: minutes: '?' stands in day-of-month or day-of-week only": ["cron(? 12 * * ? *)"],
    "at character 11: day-of-month: '?' stands in day-of-month or day-of-week only, alone": ["cron(0 12 ?,1 * ? *)"],
    "at character 13: month: 'JANUARY' is not understood; expected 1-12 or JAN-DEC": ["cron(0 12 * JANUARY ? *)"],
    "at character 11: day-of-month: 'MON' is not understood; expected 1-31": ["cron(0 12 MON * ? *)"],
    "at character 11: day-of-month: '٣' is not understood": ["cron(0 12 ٣ * ? *)"],
    # L, W and #
    "at character 11: day-of-month: L, LW or one day with W": ["cron(0 12 W * ? *)", "cron(0 12 L-3 * ? *)"],
    "at character 12: day-of-month: L, LW or one day with W": ["cron(0 12 1W,15W * ? *)"],
    "at character 16: day-of-month: L, LW or one day with W": ["cron(0 12 10-15W * ? *)"],
    "at character 15: day-of-week: L, a day with L, such as 6L, or with #": ["cron(0 12 ? * #2 *)"],
    "at character 17: day-of-week: '0' is not 1 to 5": ["cron(0 12 ? * 2#0 *)"],
    "at character 17: day-of-week: '6' is not 1 to 5": ["cron(0 12 ? * 2#6 *)"],
    "at character 15: day-of-week: '2W' is not understood": ["cron(0 12 ? * 2W *)"],
    # what never runs
    "at character 10: it never runs: no month of its years has such a day": [
        "cron(0 0 31 4,6,9,11 ? *)",
        "cron(0 0 31W 2,4 ? 2026)",
        "cron(0 0 29 2 ? 2100)",
        "cron(0 0 ? 2 2#5 2026-2031)",
    ],
}


@pytest.mark.parametrize(("text", "reason"), [(text, reason) for reason, texts in REFUSED.items() for text in texts])
def test_an_invalid_expression_is_refused_with_position_and_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_expression(text)
    assert (refused.value.field, refused.value.value) == ("scheduleExpression", text)
    assert reason in refused.value.expected


@pytest.mark.parametrize("value", [None, 5, True, b"rate(5 minutes)", ["rate(5 minutes)"], {"rate": 5}])
def test_a_value_that_is_not_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"^cronExpression: .*expected rate\(5 minutes\)"):
        parse_expression(value, "cronExpression")


@pytest.mark.parametrize(
    ("unix", "answer"),
    [
        ("cron(0 12 * * *)", "write cron(0 12 * * ? *)"),
        ("*/5 * * * *", "write cron(0/5 * * * ? *)"),
        ("30 9 * * mon-fri", "write cron(30 9 ? * MON-FRI *)"),
        ("0 2 * * 0", "write cron(0 2 ? * SUN *)"),
        ("0 2 * * 5-7", "write cron(0 2 ? * SUN,FRI,SAT *)"),
        ("0 2 * * */2", "write cron(0 2 ? * SUN,TUE,THU,SAT *)"),
        ("0 2 * * 1-5/2", "write cron(0 2 ? * MON,WED,FRI *)"),
        ("0 2 * * 1,3,sat", "write cron(0 2 ? * MON,WED,SAT *)"),
        ("0 0 1 jan *", "write cron(0 0 1 1 ? *)"),
        ("0 2 * * 5-7/2", "write cron(0 2 ? * SUN,FRI *)"),
        ("0 2 * * 0-7", "write cron(0 2 * * ? *)"),
        ("0 2 1 * 0-7", "write cron(0 2 * * ? *)"),
        ("0 2 1-31 * 1", "write cron(0 2 * * ? *)"),
        ("0 2 */1 * 1", "write cron(0 2 ? * MON *)"),
        ("@hourly", "write cron(0 * * * ? *)"),
        ("@daily", "write cron(0 0 * * ? *)"),
        ("@weekly", "write cron(0 0 ? * SUN *)"),
        ("@monthly", "write cron(0 0 1 * ? *)"),
        ("@yearly", "write cron(0 0 1 1 ? *)"),
        # A sixth field, and no brackets: not Unix.
        ("0 12 * * ? *", "the brackets are missing; write cron(0 12 * * ? *)"),
    ],
)
def test_unix_cron_is_refused_with_its_translation(unix: str, answer: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_expression(unix)
    assert refused.value.expected.endswith(answer)
    translation = answer.split("write ")[1]
    assert parse_expression(translation).text == translation


@pytest.mark.parametrize(
    ("unix", "answer"),
    [
        ("0 0 13 * 5", "cron(0 0 13 * ? *) and cron(0 0 ? * FRI *) would run it twice on days that both name"),
        ("0 9 */2 * 1", "as one of them begins with '*', cron runs the line on days that both name"),
        ("0 9 1 * */2", "as one of them begins with '*', cron runs the line on days that both name"),
    ],
)
def test_unix_cron_whose_days_no_cron_can_name_is_refused_with_the_reason(unix: str, answer: str) -> None:
    for text in (unix, f"cron({unix})"):
        with pytest.raises(
            InvalidInput, match=r"that is Unix cron; expected '\*' for day of month or day of week"
        ) as refused:
            parse_expression(text)
        assert answer in refused.value.expected


@pytest.mark.parametrize(
    "wrong",
    ["60 * * * *", "* * * * 8", "* * * * 1-", "a b c d e", "* * * * 3/2", "*/0 * * * *", "0 9 * * MON,FRI-SUN/2",
     "22-2 9 * * *", "5/15 * * * *", "0 0 30 2 *"],
)  # fmt: skip
def test_an_invalid_unix_cron_gets_no_translation(wrong: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_expression(wrong)
    assert "write" not in refused.value.expected


@given(st.randoms(use_true_random=False))
def test_parsing_the_text_of_an_expression_returns_the_same(rng: Random) -> None:
    text = generator.cron(rng)
    try:
        expression = parse_expression(text)
    except InvalidInput as refused:
        assert "it never runs" in str(refused)
        return
    assert expression.text == text, "it was normal"
    spread = f"cron(  {text[5:-1].lower().replace(' ', '   ')} )"
    assert parse_expression(spread) == expression


@given(st.text(max_size=40) | st.text("0123456789*?,-/LW#MONJA() ", max_size=30).map(lambda text: f"cron({text})"))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        expression = parse_expression(text)
    except InvalidInput as refused:
        assert refused.expected
    else:
        assert parse_expression(expression.text) == expression
