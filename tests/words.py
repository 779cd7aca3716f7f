"""Keeps names and prose to docs/glossary.md: prints each use of a word that has a better one. `make words` runs it.

Identifiers are read from the code's own tokens, so that prose may use ordinary words ("look", "most"). Strings in the
form of an identifier count too: log actions, metrics and attributes have it. Phrases are searched for in whole texts.
In the product, the names of rows' attributes are written in one module only.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from dynatick.domain import attributes

ROOT = Path(__file__).parents[1]

# Part of an identifier: what to write instead.
WORDS = {
    "agree": "publish",
    "agreed": "published",
    "agreement": "settings cache",
    "door": "interface",
    "doors": "interfaces",
    "fate": "record result",
    "fates": "record results",
    "generation": "continuation",
    "lane": "I/O thread",
    "lanes": "I/O pool",
    "mend": "repair",
    "mended": "repaired",
    "notyet": "rate limited",
    "patience": "timeout",
    "settler": "placer",
    "spoilt": "malformed",
    "suspect": "expired",
    "suspects": "expired",
    "workbench": "task pool",
}
IDENTIFIERS = {
    "in_force": "settings",
    "in_hand": "in_flight",
    "take_over": "reclaim",
    "taken_over": "reclaimed",
    "give_back": "release",
    "go_on": "continue",
    "look": "poll",
    "looks": "polls",
    "told": "log, report, return or send",
    "tell": "log, report, return or send",
    "most": "maximum",
    "least": "minimum",
}
PHRASES = {
    r"\bsomebody\b": "name who",
    r"\bwhoever\b": "name who",
    r"\bwhat becomes of\b": "how it ends",
    r"\bwhat became of\b": "how it ended",
    r"\bspoilt\b": "malformed",
    r"\bmend(s|ed|ing)?\b": "repair",
    r"\bworker threads?\b": "task threads",
    r"\bby (every|each|any|whatever) door\b": "interface",
    r"\bso many\b": "name the number",
    r"\bis told\b": "the answer, log or message says",
}
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
SELF = {"tests/words.py", "docs/glossary.md"}
ATTRIBUTES = {value: name for name, value in vars(attributes).items() if name.isupper() and isinstance(value, str)}
PRODUCT = ("shared/", "functions/")
ANSWERS = ("shared/dynatick/api/", "shared/dynatick/cli/")
# Types that declare the same names for themselves, or the fields of a payload.
DECLARATIONS = (
    "shared/dynatick/domain/attributes.py", "shared/dynatick/api/models/", "shared/dynatick/actions/sqs.py",
    "shared/dynatick/actions/webhook_payload.py",
)  # fmt: skip


def problems() -> Iterator[str]:
    """``path:line: use, and what to write instead``, in order."""
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        if name in SELF or name.startswith("requirements/") or not (ROOT / name).exists():
            continue
        if name.endswith(".py"):
            yield from _identifiers(name)
            if name.startswith(PRODUCT) and not name.startswith(DECLARATIONS):
                yield from _attributes(name)
        if name.endswith((".py", ".md", ".yaml", ".toml")):
            yield from _phrases(name)


def _identifiers(name: str) -> Iterator[str]:
    with tokenize.open(ROOT / name) as file:
        before = ""
        for token in tokenize.generate_tokens(file.readline):
            text, before = token.string, f"{before[-8:]}{token.string}"
            if before.endswith("file.tell"):  # the standard library's
                continue
            if token.type == tokenize.STRING:
                text = text.strip("\"'")
                if not ("_" in text and IDENTIFIER.fullmatch(text)):
                    continue
            elif token.type != tokenize.NAME:
                continue
            better = IDENTIFIERS.get(text.lstrip("_").lower()) or next(
                (WORDS[part.lower()] for part in PARTS.findall(text) if part.lower() in WORDS), None
            )
            if better:
                yield f"{name}:{token.start[0]}: {text}; write {better}"


def _attributes(name: str) -> Iterator[str]:
    """The names of attributes that stand as texts: words in camel case, and other words where a row is read. (The rows
    of the API and the CLI are those of an answer.)"""
    reads = () if name.startswith(ANSWERS) else ("row.get(", "row[")
    with tokenize.open(ROOT / name) as file:
        before = ""
        for token in tokenize.generate_tokens(file.readline):
            text = token.string.strip("\"'")
            is_name = not text.islower() or before.endswith(reads)
            if token.type == tokenize.STRING and is_name and text in ATTRIBUTES:
                yield f"{name}:{token.start[0]}: {token.string}; write attr.{ATTRIBUTES[text]}"
            before = f"{before[-8:]}{token.string}"


def _phrases(name: str) -> Iterator[str]:
    for number, line in enumerate((ROOT / name).read_text("utf-8").splitlines(), 1):
        for pattern, better in PHRASES.items():
            if found := re.search(pattern, line, re.IGNORECASE):
                yield f"{name}:{number}: {found[0]!r}; {better}"


def main() -> int:
    found = list(problems())
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
