"""Hooks of mkdocs that mend links.

A link to a file outside docs/ becomes the file's name, because the site lacks that file. Links in
notebooks become links of the site, which mkdocs does for Markdown only.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

_DOCS = Path(__file__).resolve().parent
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#\s]+)(?:#[^)\s]*)?\)")
_HREF = re.compile(r'href="([\w./-]+\.(?:md|ipynb))((?:#[^"]*)?)"')


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links to files of the repository by text."""
    folder = (_DOCS / page.file.src_uri).parent

    def shown(match: re.Match[str]) -> str:
        target = (folder / match[2]).resolve()
        if _DOCS in target.parents:
            return match[0]
        name = target.relative_to(_DOCS.parent).as_posix()
        title = match[1].strip("`")
        return f"`{name}`" if title.rstrip("/") == name else f"{title} (`{name}`)"

    return _LINK.sub(shown, markdown)


def on_page_content(html: str, page: Any, files: Any, **_: Any) -> str:
    """Let the links of a notebook lead to pages of the site.

    Raises:
        ValueError: there is no such page.
    """
    if not page.file.src_uri.endswith(".ipynb"):
        return html

    def resolved(match: re.Match[str]) -> str:
        path = posixpath.normpath(f"{posixpath.dirname(page.file.src_uri)}/{match[1]}")
        file = files.get_file_from_path(path)
        if file is None:
            raise ValueError(f"{page.file.src_uri} links to {match[1]}, which is no page")
        return f'href="{file.url_relative_to(page.file)}{match[2]}"'

    return _HREF.sub(resolved, html)
