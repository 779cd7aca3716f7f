"""Files in memory, and what is read of them."""

from __future__ import annotations

import io

from dynatick.bulk.file_format import FileFormat
from dynatick.bulk.file_reader import read
from dynatick.bulk.record import Record


def records(content: str | bytes, form: FileFormat = FileFormat.NDJSON, **place: int) -> list[Record]:
    data = content if isinstance(content, bytes) else content.encode()
    return list(read(lambda offset: io.BytesIO(data[offset:]).read, form, **place))
