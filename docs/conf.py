from __future__ import annotations

from importlib.metadata import version as version_of

project = "Cubinet"
author = "The Cubinet maintainers"
copyright = "The Cubinet maintainers"
release = version_of("cubinet")
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"Cubinet {release}"

# Every reference to a public name of ours must resolve. Other libraries' names are not looked up, as
# that would need the network.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!cubinet\b).*"),
    ("py:.*", r".*\._\w+(\.\w+)?"),
    ("py:.*", r"cubinet\.(store\.(format|lock)|objects\.(ascend_hints|elf))\..*"),
]

myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 3

# Docstrings put code in single backquotes, as Markdown does.
default_role = "literal"

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints = "signature"
python_use_unqualified_type_names = True

# Copy what was typed, not the prompt or the output.
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
