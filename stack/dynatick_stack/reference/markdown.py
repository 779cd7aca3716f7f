"""Parts of a page."""

from collections.abc import Iterable, Sequence

GENERATED = "<!-- Written by `make docs`; change what it is made of instead. -->"


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; bars within cells are escaped."""
    lines = [heading, ["---"] * len(heading), *rows]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|").strip() for cell in line) + " |" for line in lines)
    return text.replace("| --- | ", "|---|").replace("|--- |", "|---|").replace("| --- |", "|---|")


def page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", GENERATED, *(part.strip("\n") for part in parts if part)]) + "\n"


def one_line(text: str) -> str:
    return " ".join(text.split())


def entries(text: str) -> dict[str, list[str]]:
    """``name | …`` a line, lines that go on indented: what is said of each name."""
    joined = text.replace("\n    ", " ").strip().splitlines()
    return {name: said for name, *said in ([cell.strip() for cell in line.split(" | ")] for line in joined)}
