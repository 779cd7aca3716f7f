from dynatick_stack.cli import app

app(prog_name="python -m dynatick_stack")
