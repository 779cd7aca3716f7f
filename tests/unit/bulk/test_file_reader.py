"""Reading of files: all formats, and malformed lines, which affect no others."""

from __future__ import annotations

import io
import itertools
import json
import time
import tracemalloc
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.bulk.support import records

from dynatick.bulk.file_reader import read
from dynatick.bulk.record import MAX_EMPTY_LINES, MAX_LINE_BYTES, FileFormat, format_of, lines
from dynatick.errors import InvalidInput


def rows(content: str | bytes, form: FileFormat = FileFormat.NDJSON) -> list[object]:
    return [record.row if record.error is None else str(record.error) for record in records(content, form)]


# -- lines -----------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=12).map(lambda part: part.replace(b"\n", b" "))), st.integers(1, 7))
def test_lines_are_those_of_the_file_whatever_the_chunks(parts: list[bytes], size: int) -> None:
    content = b"\n".join(parts)
    stream = io.BytesIO(content)
    found = list(lines(lambda _: stream.read(size), limit=10**6))
    assert b"".join(line.content for line in found) == content
    assert [line.number for line in found] == list(range(1, len(found) + 1))
    assert [line.end for line in found] == [sum(len(one.content) for one in found[: n + 1]) for n in range(len(found))]
    for line in found:  # from any line on, the rest is the same
        again = list(lines(io.BytesIO(content[line.end :]).read, offset=line.end, number=line.number + 1))
        assert again == found[line.number :]


@pytest.mark.parametrize("size", [1, 3, 7, 64, 10_000])
def test_a_line_that_is_too_long_is_skipped(size: int) -> None:
    content = b"a\n" + b"x" * 5000 + b"\nb\n" + b"y" * 3000
    stream = io.BytesIO(content)
    found = list(lines(lambda _: stream.read(size), limit=20))
    assert [(line.number, line.end, line.too_long) for line in found] == [
        (1, 2, False), (2, 5003, True), (3, 5005, False), (4, 8005, True),
    ]  # fmt: skip
    assert all(len(line.content) <= 1000 for line in found)


def test_a_line_may_be_as_long_as_an_item_with_each_byte_escaped() -> None:
    task = json.dumps({"taskId": "a", "payload": {"x": ""}})
    fits = task.replace('""', '"%s"' % ("x" * (MAX_LINE_BYTES - len(task))))
    first, second = records(f"{fits}\r\n{fits} \n")
    assert first.row is not None
    assert str(second.error).endswith("expected a line of at most 2457600 bytes")


def test_memory_does_not_grow_with_a_line_or_a_file() -> None:
    def peak(total: int, piece: bytes, form: FileFormat) -> int:
        pieces = itertools.repeat(piece, total // len(piece))
        tracemalloc.start()
        number = sum(1 for _ in read(lambda _offset: lambda _size: next(pieces, b""), form))
        _, maximum = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert number > 0
        return maximum

    task = b'{"taskId": "a", "payload": {"text": "%s"}}\n' % (b"x" * 1000) * 100
    for form, piece in [
        (FileFormat.NDJSON, task),
        (FileFormat.NDJSON, b"x" * 100_000),  # a single line
        (FileFormat.JSON, task),
        (FileFormat.CSV, b"taskId,payload.a\n" + b'"1","%s\n3"\n' % (b"x" * 3000) * 100),
        (FileFormat.CSV, b'"' + b"x\n" * 50_000),  # a quote that is left open
    ]:
        assert peak(9_000_000, piece, form) < 1.3 * peak(3_000_000, piece, form) + 250_000


# -- NDJSON ----------------------------------------------------------------------------------------------------


def test_ndjson_skips_empty_lines() -> None:
    text = '\ufeff{"taskId": "a"}\r\n\r\n   \n\t{"taskId": "größe", "n": 1.50}  \n{"taskId": "c"}'
    found = records(text)
    assert [(record.line, record.row) for record in found] == [
        (1, {"taskId": "a"}), (4, {"taskId": "größe", "n": Decimal("1.50")}), (5, {"taskId": "c"}),
    ]  # fmt: skip
    assert found[-1].end == len(text.encode())
    for record in found:
        assert records(text, offset=record.end, number=record.next_line) == found[found.index(record) + 1 :]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"taskId": "\xff\xfe"}', "expected UTF-8: invalid start byte"),
        (b'{"taskId": "\xc3', "expected UTF-8: invalid continuation byte"),
        (b'{"taskId": "a"', "expected JSON: Expecting ',' delimiter"),
        (b'{"taskId": "a"} {"taskId": "b"}', "expected JSON: Extra data"),
        (b'{"taskId": "a", "n": NaN}', "NaN is not a number that a table can hold"),
        (b'{"taskId": "a", "taskId": "b"}', "the name 'taskId' is there twice"),
        (b'{"taskId": "a", "n": ' + b"9" * 5000 + b"}", "expected JSON: Exceeds the limit"),
        (b"[" * 100_000, "nested too deeply"),
        (b'[{"taskId": "a"}]', "put each element of a list"),
        (b'"text"', "expected a JSON object"),
        ("\ufeff".encode() + b"{}", "Unexpected UTF-8 BOM"),  # not at the beginning of the file
    ],
)
def test_a_malformed_line_is_refused_alone(line: bytes, why: str) -> None:
    before, bad, after = records(b'{"taskId": "x"}\n' + line + b'\n{"taskId": "y"}\n')
    assert (before.row, after.row) == ({"taskId": "x"}, {"taskId": "y"})
    assert bad.row is None and bad.line == 2
    assert bad.error is not None and why in str(bad.error) and len(str(bad.error)) < 400


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{\n  "taskId": "a",\n  "payload": {}\n}\n', [{"taskId": "a", "payload": {}}]),
        ('\ufeff\n\n{"taskId":\n "a"}', [{"taskId": "a"}]),
        ('{"taskId": "a"}\n{"taskId": "b"}\n', [{"taskId": "a"}, {"taskId": "b"}]),
        ("", []),
    ],
)
def test_a_json_file_is_one_object_or_one_in_each_line(text: str, expected: list[object]) -> None:
    assert rows(text, FileFormat.JSON) == expected


def test_a_large_json_file_is_read_as_lines() -> None:
    found = records(("{\n" + " " * 1000) * 2500, FileFormat.JSON)
    assert len(found) == 2500 and all(record.error is not None for record in found)


@pytest.mark.parametrize(
    ("text", "why"), [('{\n "taskId": "a"\n', "expected JSON"), ("[\n {}\n]", "put each element of a list")]
)
def test_a_malformed_json_file_is_one_error(text: str, why: str) -> None:
    (record,) = records(text, FileFormat.JSON)
    assert record.line == 1 and record.error is not None and record.error.field == "file" and why in str(record.error)


# -- CSV -------------------------------------------------------------------------------------------------------


def test_csv_cells_become_values() -> None:
    text = (
        "\ufefftaskId,dueAt,action,payload.to,payload.n:json,retryPolicy.maximumRetryAttempts,tenant,delaySeconds,*\r\n"
        'a,2026-12-31T12:00:00Z,mail,"Ada, ""A."" Lovelace\r\nLondon",1.50,5,t1,,\r\n'
        "\r\n"
        'b,1798718400,,,"[1, null]",,,,"{""vip"": true}"\r\n'
        "c,,,,,,,60.5,\r\n"
    )
    assert rows(text, FileFormat.CSV) == [
        {"taskId": "a", "dueAt": "2026-12-31T12:00:00Z", "action": "mail",
         "payload": {"to": 'Ada, "A." Lovelace\r\nLondon', "n": Decimal("1.50")},
         "retryPolicy": {"maximumRetryAttempts": 5}, "tenant": "t1"},
        {"taskId": "b", "dueAt": Decimal(1798718400), "payload": {"n": [1, None]}, "vip": True},
        {"taskId": "c", "delaySeconds": Decimal("60.5")},
    ]  # fmt: skip
    *accepted, refused = rows("taskId,timeoutSeconds\na,60\nb,\nc,long\n", FileFormat.CSV)
    assert accepted == [{"taskId": "a", "timeoutSeconds": Decimal(60)}, {"taskId": "b"}]
    assert refused == "timeoutSeconds: 'long' is not accepted; expected a number of seconds"
    assert records("taskId,dueAt\r\n", FileFormat.CSV) == records("", FileFormat.CSV) == []
    found = records(text, FileFormat.CSV)
    assert [record.line for record in found] == [2, 5, 6]
    for n, record in enumerate(found):  # the heading is known, wherever it goes on
        assert records(text, FileFormat.CSV, offset=record.end, number=record.next_line) == found[n + 1 :]


def test_in_a_csv_file_of_payloads_a_column_is_a_text_whatever_its_name() -> None:
    text = "dueAt,delaySeconds,payload,retryPolicy.x,*,n:json\n20261231,n/a,hello,007,{},1.50\n,,,,,\n"
    assert [record.row for record in records(text, FileFormat.CSV, of_payloads=True)] == [
        {"dueAt": "20261231", "delaySeconds": "n/a", "payload": "hello", "retryPolicy.x": "007", "*": "{}",
         "n": Decimal("1.50")},
        {},
    ]  # fmt: skip
    for heading, why in (("a,a", "each attribute once"), ("a,:json", "the name of a field"), ("a;b", "by commas")):
        (refused,) = records(f"{heading}\n1,2\n", FileFormat.CSV, of_payloads=True)
        assert refused.is_last and why in str(refused.error)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"a", "expected 2 cells, as the heading has; found 1"),
        (b'"a"b,{}', "expected a row of CSV: ',' expected after '\"'"),
        (b"a,{", "payload: '{' is not accepted; expected JSON"),
        (b"a,[]", "payload: [] is not accepted; expected a JSON object"),
        (b"\xff,{}", "taskId: '\\udcff' is not accepted; expected UTF-8"),
    ],
)
def test_a_malformed_row_is_refused_alone(line: bytes, why: str) -> None:
    before, bad, after = records(b"taskId,payload\nx,{}\n" + line + b"\ny,{}\n", FileFormat.CSV)
    assert (before.row, after.row) == ({"taskId": "x", "payload": {}}, {"taskId": "y", "payload": {}})
    assert (bad.line, bad.row) == (3, None) and why in str(bad.error), str(bad.error)


@pytest.mark.parametrize(
    ("heading", "why"),
    [
        ("taskId,taskId", "expected each attribute once"),
        ("taskId,payload,payload.a", "expected each attribute once"),
        ("taskId,", "expected the name of an attribute in each column"),
        ("taskId,payload.", "expected the name of an attribute"),
        ("taskId;dueAt", "expected columns separated by commas"),
        ('taskId,"due', "expected a row of CSV: unexpected end of data"),
    ],
)
def test_an_invalid_heading_ends_the_file(heading: str, why: str) -> None:
    (record,) = records(f"{heading}\na,b\n", FileFormat.CSV)
    assert record.is_last and record.line == 1 and why in str(record.error), str(record.error)
    assert str(record.error).count("nothing after it can be read") == 1


def test_an_open_quote_ends_the_file() -> None:
    text = 'taskId,action\na,log\nb,"log\n' + "c,log\n" * 500_000
    good, bad = records(text, FileFormat.CSV)
    assert good.row == {"taskId": "a", "action": "log"}
    assert (bad.line, bad.is_last) == (3, True)
    assert str(bad.error).endswith("at most 2457600 bytes (is a quote left open?); nothing after it can be read")
    assert len(bad.text) <= 400
    good, bad = records('taskId,action\na,log\nb,"log\nc,log\n', FileFormat.CSV)
    assert (bad.line, bad.is_last) == (3, True)
    assert str(bad.error).endswith("unexpected end of data; nothing after it can be read")


@given(st.binary(max_size=300), st.sampled_from(FileFormat))
def test_reading_any_file_ends(content: bytes, form: FileFormat) -> None:
    for head in (b"", b"taskId,payload.a,*\n"):
        found = records(head + content, form)
        assert all((record.row is None) != (record.error is None) for record in found)
        ends = [record.end for record in found]
        assert ends == sorted(ends) and all(end <= len(head + content) for end in ends)
        json.dumps([record.text for record in found]).encode()


def test_the_format_follows_from_the_name_and_an_unknown_ending_is_refused() -> None:
    for name, form in (("a.ndjson", "ndjson"), ("a.b.JSONL", "ndjson"), ("x/y.csv", "csv"), ("a.json", "json")):
        assert format_of(name) == form
    for name in ("tasks", "tasks.txt", "ndjson", "tasks.csv.gz", ""):
        with pytest.raises(InvalidInput, match=r"ends in one of \.ndjson, \.jsonl, \.json, \.csv"):
            format_of(name)


@pytest.mark.parametrize(("form", "heading"), [(FileFormat.NDJSON, ""), (FileFormat.CSV, "taskId\n")])
def test_a_file_of_empty_lines_has_an_end(form: FileFormat, heading: str) -> None:
    """The import can stop only between two records."""
    task = '{"taskId": "a"}\n' if form is FileFormat.NDJSON else "a\n"
    (first, last) = records(heading + "\n" * MAX_EMPTY_LINES + task + "\n" * (MAX_EMPTY_LINES + 1) + task, form)
    assert (first.row, first.is_last) == ({"taskId": "a"}, False)
    assert last.error is not None
    assert (last.error.field, last.is_last) == ("line", True)


def test_thousands_of_columns_or_of_names_are_compared_in_linear_time() -> None:
    columns, cells = ",".join(f"c{n}" for n in range(20_000)), ",".join("1" for _ in range(20_000))
    names = ", ".join(f'"{n:x}": 1' for n in range(30_000))
    began = time.process_time()
    (wide,) = records(f'taskId,*,{columns}\na,"{{}}",{cells}\n', FileFormat.CSV)
    (duplicate,) = records("{" + names + ', "0": 2}\n')
    assert time.process_time() - began < 4  # 7 s and half a minute, if each is compared with each
    assert wide.row is not None and len(wide.row) == 20_001
    assert duplicate.error is not None and "is there twice" in str(duplicate.error)
