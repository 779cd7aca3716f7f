"""Files in memory, what is read of them, and rows of converted schedules."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from dynatick.bulk.conversion import Conversion
from dynatick.bulk.file_reader import read
from dynatick.bulk.record import FileFormat, Record


def records(content: str | bytes, form: FileFormat = FileFormat.NDJSON, **place: int) -> list[Record]:
    data = content if isinstance(content, bytes) else content.encode()
    return list(read(lambda offset: io.BytesIO(data[offset:]).read, form, **place))


def row_of(one: Conversion) -> Mapping[str, Any]:
    assert one.row is not None, one.error
    return one.row
