"""Mutations find their functions wherever those are, and say so if they can't be made."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.mutation import CannotMutate, Mutation
from tests.mutations import MUTATIONS

MODULE = '''
from os import path


class Window:
    # What it holds.
    @property
    def is_open(self) -> bool:
        """Whether it is."""
        return self.contended > 0 or self.in_flight > 0  # of this pass

    def end(self, now: int) -> None:
        self.contended, self.in_flight = 0, 0
        self.save(now, then=path)
        if now > 0:
            self.save(now, then=None)
'''


def package(tmp_path: Path, text: str = MODULE, *, module: str = "engine/cursor.py") -> Path:
    file = tmp_path / "shared/dynatick" / module
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    return tmp_path


def mutation(function: str, old: str, new: str) -> Mutation:
    return Mutation(1, "it happens", function, old, new, "tests/unit")


def changed(root: Path, function: str, old: str, new: str) -> str:
    """What the function's class or module does after the mutation, as its code without layout."""
    path, text = mutation(function, old, new).applied(root)
    assert path.is_relative_to(root)
    return ast.unparse(ast.parse(text))


@pytest.mark.parametrize(
    ("function", "old", "new", "before", "after"),
    [
        ("Window.is_open", "self.contended > 0", "False", "self.contended > 0 or", "False or"),
        ("Window.is_open", "", "return True",
         '"""Whether it is."""\n        return self.contended > 0 or self.in_flight > 0', "return True"),
        ("engine:Window.end", "self.save(now, then=None)", "", "self.save(now, then=None)", "pass"),
        ("Window.end", "self.save(now, then=path)", "self.save(now - 1, then=path)", "self.save(now, then=path)",
         "self.save(now - 1, then=path)"),
        ("Window.end", "self.contended, self.in_flight = 0, 0\nself.save(...)", "self.save(now, then=path)",
         "self.contended, self.in_flight = (0, 0)\n        self.save(now, then=path)", "self.save(now, then=path)"),
    ],
)  # fmt: skip
def test_a_mutation_changes_one_function_and_nothing_else(
    tmp_path: Path, function: str, old: str, new: str, before: str, after: str
) -> None:
    whole = ast.unparse(ast.parse(MODULE))
    assert whole.count(before) == 1
    assert changed(package(tmp_path), function, old, new) == whole.replace(before, after)


def test_a_function_that_was_moved_and_formatted_anew_is_still_found(tmp_path: Path) -> None:
    moved = MODULE.replace(
        "self.contended > 0 or self.in_flight > 0", "(\n            self.contended>0\n or self.in_flight > 0)"
    )
    assert moved != MODULE
    root = package(tmp_path, moved, module="engine/other/place.py")
    assert "return False or self.in_flight > 0" in changed(root, "engine:Window.is_open", "self.contended > 0", "False")


@pytest.mark.parametrize(
    ("function", "old", "new", "problem"),
    [
        ("Window.closes", "", "return True", "0 functions are called Window.closes"),
        ("store:Window.is_open", "", "return True", "0 functions are called"),
        ("Window.is_open", "self.gone > 0", "False", "is 0 times in Window.is_open"),
        ("Window.end", "self.save(...)", "", "is 2 times in Window.end"),
        ("Window.end", "now > 0", "0 < now and other", "end does not know other"),
        ("Window.end", "now > 0", "self.elsewhere", "nothing has an attribute elsewhere"),
        ("Window.end", "now > 0", "now > 0", "it changes nothing in Window.end"),
        ("Window.is_open", "self.contended > 0", "", "only an expression can replace it"),
    ],
)
def test_what_can_no_longer_be_taken_out_is_an_error(
    tmp_path: Path, function: str, old: str, new: str, problem: str
) -> None:
    with pytest.raises(CannotMutate, match=problem):
        mutation(function, old, new).applied(package(tmp_path))


def test_two_functions_of_one_name_are_told_apart_by_their_folder(tmp_path: Path) -> None:
    package(tmp_path)
    package(tmp_path, module="store/window.py")
    with pytest.raises(CannotMutate, match="2 functions are called"):
        mutation("Window.is_open", "", "return True").applied(tmp_path)
    assert mutation("store:Window.is_open", "", "return True").applied(tmp_path)[0].parent.name == "store"


@pytest.mark.parametrize("made", MUTATIONS, ids=lambda mutation: mutation.what)
def test_each_mutation_can_be_made(made: Mutation) -> None:
    path, text = made.applied()
    assert text != path.read_text(encoding="utf-8")
