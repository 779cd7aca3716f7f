"""Exports tasks and schedules as the lines of a file that can be imported."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dynatick.bulk.csv_reader import REST
from dynatick.bulk.record import FileFormat
from dynatick.bulk.task_definition import DEFINITION, STATE, definition
from dynatick.client.views import instant_or_none
from dynatick.domain import attributes as attr
from dynatick.domain.instants import format_instant
from dynatick.domain.task import Row
from dynatick.errors import InvalidInput
from dynatick.json_reader import dumps

_OBJECTS = (attr.PAYLOAD, attr.RETRY_POLICY, REST)  # columns with JSON, without ``:json`` in the heading
_STRUCTURED = (attr.ATTEMPTS, attr.RESULT)  # columns with JSON and ``:json`` in the heading


def export_lines(
    rows: Iterable[Row],
    form: FileFormat,
    *,
    with_state: bool = False,
    defines: Sequence[str] = DEFINITION,
    heading: bool = True,
) -> Iterator[str]:
    """The lines of a file, each with its line end: one for each row, in CSV after a ``heading``.

    ``with_state``: include the attributes that Dynatick has set, not only those that define the task. ``defines``: the
    attributes that come first; for schedules ``SCHEDULE_DEFINITION``. Raises InvalidInput for the format JSON.
    """
    if form is FileFormat.JSON:
        raise InvalidInput("format", str(form), "expected ndjson or csv")
    columns = [*defines, *(STATE if with_state else ()), REST]
    if form is FileFormat.CSV and heading:
        yield _csv(f"{name}:json" if name in _STRUCTURED else name for name in columns)
    for row in rows:
        kept = definition(row)
        if with_state:
            kept |= {name: value for name, value in row.items() if value is not None and name in (*DEFINITION, *STATE)}
            expires = instant_or_none(row.get(attr.EXPIRES_AT))
            if expires is not None:  # in the table, epoch seconds: no other time is a number
                kept[attr.EXPIRES_AT] = format_instant(expires)
        if form is FileFormat.CSV:
            rest = {name: value for name, value in kept.items() if name == REST or name not in columns}
            cells = {**kept, REST: rest or None}
            yield _csv(_cell(name, cells.get(name)) for name in columns)
        else:
            yield dumps(_in_order(kept, defines)) + "\n"


def _in_order(row: Mapping[str, object], defines: Sequence[str]) -> Mapping[str, object]:
    """The row with the attributes in ``defines`` first."""
    first = [name for name in (*defines, *STATE) if name in row]
    return {name: row[name] for name in (*first, *sorted(set(row) - set(first)))}


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    is_json = name in _OBJECTS or name in _STRUCTURED
    return value if isinstance(value, str) and not is_json else dumps(value)


def _csv(cells: Iterable[str]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(list(cells))
    return line.getvalue()
