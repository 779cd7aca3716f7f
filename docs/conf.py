"""Sphinx builds the site from this folder: `make site`."""

project = "Dynatick"
author = "The Dynatick authors"
html_title = "Dynatick"
html_theme = "furo"
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
nitpicky = False

myst_enable_extensions = ["fieldlist"]
myst_heading_anchors = 4
# A documented block may be a transcript or JSON with an ellipsis, which no lexer accepts whole.
suppress_warnings = ["misc.highlighting_failure"]
