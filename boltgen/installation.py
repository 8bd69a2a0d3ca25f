"""The source of this boltgen's installation, and the check of its platform."""

from __future__ import annotations

import json
import platform
import shlex
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from boltgen.errors import BoltgenError

_PROJECT = "boltgen"
_CHECKOUT = Path(__file__).resolve().parent.parent


def install_command(*extras: str) -> str:
    """Return the command that installs this boltgen again, with `extras`."""
    command = shlex.join(("pip", "install", *install_arguments(*extras)))
    return command if _source() else f"{command} in a checkout of boltgen"


def install_arguments(*extras: str) -> tuple[str, ...]:
    """Return the arguments of `pip install` for this boltgen, with `extras`."""
    wanted = f"[{','.join(extras)}]" if extras else ""
    source = _source() or "."
    editable = ("-e",) if source == str(_CHECKOUT) else ()
    if urlsplit(source).scheme:
        return (f"{_PROJECT}{wanted} @ {source}",)
    return (*editable, f"{source}{wanted}")


def _source() -> str | None:
    """Return the checkout, wheel, URL or name that boltgen came from, or None if it is gone."""
    if (_CHECKOUT / "pyproject.toml").is_file():
        return str(_CHECKOUT)
    origin = _origin()
    url = urlsplit(origin or _PROJECT)
    if url.scheme != "file":
        return origin or _PROJECT
    place = unquote(url.path)
    return place if Path(place).exists() else None


def _origin() -> str | None:
    """Return the URL that pip was given, or None if boltgen came from an index.

    Source: PEP 610, direct_url.json.
    """
    import importlib.metadata  # noqa: PLC0415 (a message needs it; every import of boltgen would wait)

    try:
        text = importlib.metadata.distribution(_PROJECT).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    url = json.loads(text).get("url") if text else None
    return url if isinstance(url, str) else None


def refuse_other_platforms() -> None:
    """Raise BoltgenError unless this is Linux on x86-64, which the virtual GPU is written for."""
    system, machine = sys.platform, platform.machine()
    if system != "linux" or machine != "x86_64":
        raise BoltgenError(
            f"boltgen runs on Linux on x86-64 only, and this is {system} on {machine}; use it on "
            "such a machine or in a container of one"
        )
