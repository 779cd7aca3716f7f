"""The format of a file of tasks."""

from __future__ import annotations

from enum import StrEnum

from dynatick.errors import InvalidInput


class FileFormat(StrEnum):
    """The format of a file of tasks."""

    NDJSON = "ndjson"  # one JSON object in each line
    CSV = "csv"  # a heading, then one task in each row
    JSON = "json"  # one JSON object on any number of lines; otherwise as NDJSON


_BY_ENDING = {"ndjson": FileFormat.NDJSON, "jsonl": FileFormat.NDJSON, "json": FileFormat.JSON, "csv": FileFormat.CSV}


def format_of(name: str) -> FileFormat:
    """The format, from the ending of the file's name. Raises InvalidInput."""
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    if ending not in _BY_ENDING:
        endings = ", ".join(f".{one}" for one in _BY_ENDING)
        raise InvalidInput("file", name, f"expected a name that ends in one of {endings}")
    return _BY_ENDING[ending]
