"""Writes the pages: python -m dynatick_stack.reference"""

from dynatick_stack.reference.pages import FOLDER, pages

for name, text in pages().items():
    path = FOLDER / name
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
        print(f"Wrote {path}")
