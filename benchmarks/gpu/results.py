"""A slice's results: one JSON file, rewritten whole after each item, so that a kill loses one."""

from __future__ import annotations

import base64
import json
import lzma
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VERSION = 2
DONE, FAILED = "done", "failed"


class ResultsError(Exception):
    """A file of results that cannot be read or written; the message is for people."""


@dataclass(slots=True)
class Slice:
    """The results of slice `number` of `count`. `about` is the device and the method."""

    path: Path
    number: int
    count: int
    about: dict[str, Any] = field(default_factory=dict)
    items: dict[str, dict[str, Any]] = field(default_factory=dict)

    def record(self, key: str, status: str, result: dict[str, Any]) -> None:
        """Keep an item's result on disk.

        Raises:
            ResultsError: the disk is full, or the folder cannot be written.
        """
        self.items[key] = {"status": status, **result}
        self.write()

    def write(self) -> None:
        """Write the file, which is replaced whole or not at all.

        Raises:
            ResultsError: the disk is full, or the folder cannot be written.
        """
        form = {
            "version": VERSION,
            "slice": f"{self.number}/{self.count}",
            "about": self.about,
            "items": self.items,
        }
        staged = self.path.with_suffix(".tmp")
        try:
            with staged.open("w", encoding="utf-8") as file:
                json.dump(form, file, indent=1, allow_nan=False)
                file.flush()
                os.fsync(file.fileno())
            staged.replace(self.path)
        except OSError as error:
            raise ResultsError(
                f"{self.path} cannot be written ({error.strerror or error}); what was measured "
                "before is kept there: free some space, or give another --out"
            ) from error


def device_folder(name: str) -> str:
    """The name of a device's folder in `results` and `recorded`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def packed(content: bytes) -> str:
    """Bytes as a result's text has them: compressed, in base 85."""
    return base64.b85encode(lzma.compress(content)).decode()


def unpacked(text: str) -> bytes:
    """What `packed` made `text` of.

    Raises:
        ResultsError: nothing is that.
    """
    try:
        return lzma.decompress(base64.b85decode(text))
    except (ValueError, lzma.LZMAError) as error:
        raise ResultsError(f"{text[:40]!r} is nothing that the suite packed: {error}") from error


def open_slice(out: Path, number: int, count: int) -> Slice:
    """The slice's results so far.

    Raises:
        ResultsError: the file is damaged, or of another version of the suite.
    """
    path = out / f"slice-{number}-of-{count}.json"
    found = Slice(path, number, count)
    if path.is_file():
        form = read_form(path)
        found.about, found.items = form["about"], form["items"]
    return found


def read_form(path: Path) -> dict[str, Any]:
    """What a slice's file says.

    Raises:
        ResultsError: it is none.
    """
    try:
        form = json.loads(path.read_text(encoding="utf-8"))
        if form["version"] != VERSION:
            raise ResultsError(
                f"{path} was written by version {form['version']!r} of the suite; this one reads "
                f"{VERSION}: measure it again"
            )
        if not isinstance(form["about"], dict) or not isinstance(form["items"], dict):
            raise TypeError("its parts are no objects")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"{path} is no file of results: {error!r}; remove it") from error
    return dict(form)
