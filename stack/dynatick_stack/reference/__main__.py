"""`python -m dynatick_stack.reference`: writes what is generated in docs/reference (`make docs`)."""

from dynatick.api.document import text as openapi
from dynatick_stack.markdown import write_parts
from dynatick_stack.reference.parts import FOLDER, PARTS

for page, parts in PARTS.items():
    write_parts(FOLDER / page, parts())
(FOLDER / "openapi.json").write_text(openapi(), encoding="utf-8")
