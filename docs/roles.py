"""Roles in docstrings, as ``:meth:`fit``` or ``:class:`~treevae.TreeVAE```, as code: the site's pages are Markdown."""

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):`~?([^`]+)`")


class Roles(griffe.Extension):
    """Reads every docstring before it becomes a page."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = ROLE.sub(lambda role: f"`{role[1]}`", obj.docstring.value)
