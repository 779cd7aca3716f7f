"""Sphinx builds the site from this folder: `make site`."""

project = "Dynatick"
author = "The Dynatick authors"
html_title = "Dynatick"
html_theme = "furo"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
nitpicky = False

myst_enable_extensions = ["fieldlist"]
myst_heading_anchors = 4
# A documented block may be a transcript or JSON with an ellipsis, which no lexer accepts whole.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "exclude-members": "__init__, __new__"}
