"""Sphinx builds the site from this folder: `make site`."""

import tomllib
from pathlib import Path

project = "Dynatick"
author = "The Dynatick authors"
with (Path(__file__).parents[1] / "pyproject.toml").open("rb") as file:
    release = tomllib.load(file)["project"]["version"]
html_title = f"Dynatick {release}"
html_theme = "furo"
html_baseurl = "https://dynatick.github.io/dynatick/latest/"
extensions = ["myst_parser", "sphinx_llms_txt"]
exclude_patterns = ["_build"]
nitpicky = False

myst_enable_extensions = ["fieldlist"]
myst_heading_anchors = 4
# llms.txt and llms-full.txt, for programs that read instead of people.
llms_txt_title = f"Dynatick {release}"
llms_txt_summary = """A task scheduler on AWS for Python teams: one DynamoDB table, two EventBridge rules, a few Lambda
functions. Insert a task with or without a time; a tick runs it when it is due; ask any time bucket what
happened in it."""
llms_txt_exclude = ["decisions/*"]
# A documented block may be a transcript or JSON with an ellipsis, which no lexer accepts whole.
suppress_warnings = ["misc.highlighting_failure"]
