"""What a file holds, by its name."""

from __future__ import annotations

from enum import StrEnum

from dynatick.errors import InvalidInput


class FileFormat(StrEnum):
    """How a file of tasks is written."""

    NDJSON = "ndjson"  # a JSON object a line
    CSV = "csv"  # a heading, then a task a row
    JSON = "json"  # one JSON object, on as many lines as it likes; else as NDJSON


_BY_ENDING = {"ndjson": FileFormat.NDJSON, "jsonl": FileFormat.NDJSON, "json": FileFormat.JSON, "csv": FileFormat.CSV}


def format_of(name: str) -> FileFormat:
    """The format that a file's name tells. Raises InvalidInput."""
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    if ending not in _BY_ENDING:
        endings = ", ".join(f".{one}" for one in _BY_ENDING)
        raise InvalidInput("file", name, f"expected a name that ends in one of {endings}")
    return _BY_ENDING[ending]
