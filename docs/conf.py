"""Sphinx settings: Markdown pages, one theme, every warning an error (`make docs`)."""

project = "GimbalMQ"
author = "the GimbalMQ contributors"
project_copyright = "the GimbalMQ contributors, Apache-2.0"

extensions = ["myst_parser"]
myst_heading_anchors = 3
nitpicky = True

html_theme = "furo"
html_title = "GimbalMQ"
html_show_sphinx = False
exclude_patterns = ["results"]
