"""A run's results: one JSON file, rewritten whole after each item, so that a kill loses one."""

from __future__ import annotations

import base64
import json
import lzma
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from boltgen.errors import BoltgenError

VERSION = 4
FILE = "suite-results.json"
DONE, FAILED = "done", "failed"
# All results of one report have these in common.
_SAME = ("gpu", "driver", "commit", "toolchain", "vendor")

Form: TypeAlias = dict[str, Any]


class ResultsError(BoltgenError):
    """Results that cannot be read, written or merged; the message says why."""


@dataclass(slots=True)
class Results:
    """The results of one run: one JSON file. `about` is the device and the method."""

    path: Path
    about: Form = field(default_factory=dict)
    items: dict[str, Form] = field(default_factory=dict)

    def record(self, key: str, status: str, result: Form) -> None:
        """Keep an item's result on disk.

        Raises:
            ResultsError: the disk is full, or the folder cannot be written.
        """
        self.items[key] = {"status": status, **result}
        self.write()

    def belong_to(self, about: Form) -> None:
        """Check that the results so far are of this device, driver, commit, toolchain and vendor.

        Raises:
            ResultsError: they are of another run.
        """
        differing = [
            f"{name} was {self.about.get(name)}, and is {about.get(name)}"
            for name in _SAME
            if self.about and self.about.get(name) != about.get(name)
        ]
        if differing:
            raise ResultsError(
                f"{self.path} has results of another run: {'; '.join(differing)}. Give another "
                "--out; nothing was overwritten"
            )
        self.about = about

    def write(self) -> None:
        """Write the file, which is replaced whole or not at all.

        Raises:
            ResultsError: the disk is full, or the folder cannot be written.
        """
        form = {"version": VERSION, "about": self.about, "items": self.items}
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


def open_results(out: Path) -> Results:
    """Read the results so far in folder `out`, if there are any.

    Raises:
        ResultsError: the file is damaged, or of another version of the suite.
    """
    found = Results(out / FILE)
    if found.path.is_file():
        form = read_form(found.path)
        found.about, found.items = form["about"], form["items"]
    return found


def read_form(path: Path) -> Form:
    """Read a file of results.

    Raises:
        ResultsError: the file has no results, or another version of the suite wrote it.
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
        raise ResultsError(
            f"{path} is no file of results: {error!r}; copy it again, or remove it"
        ) from error
    return dict(form)


def merged(folders: Sequence[Path]) -> tuple[Form, dict[str, Form]]:
    """Read the results in all `folders`: the device and method, and the items.

    An item that one run finished counts, whatever another run says of it.

    Raises:
        ResultsError: there are none, or they are of several devices, commits or toolchains.
    """
    paths = [path for folder in folders if (path := folder / FILE).is_file()]
    if not paths:
        looked = ", ".join(map(str, folders))
        raise ResultsError(f"no {FILE} in {looked}: give folders that run_gpu_suite.py wrote")
    forms = {path: read_form(path) for path in paths}
    differing = []
    for name in _SAME:
        values = {str(form["about"].get(name)): path for path, form in forms.items()}
        if len(values) > 1:
            shown = ", ".join(f"{value} in {path.parent}" for value, path in values.items())
            differing.append(f"{name} ({shown})")
    if differing:
        raise ResultsError(
            f"these results do not go together; they differ in {'; '.join(differing)}: report on "
            "each by itself"
        )
    items: dict[str, Form] = {}
    for form in forms.values():
        for key, item in form["items"].items():
            if key not in items or items[key]["status"] != DONE:
                items[key] = item
    return forms[paths[-1]]["about"], items


def device_folder(name: str) -> str:
    """Name a device's folder in `results` and `recorded`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def packed(content: bytes) -> str:
    """Encode bytes as text for a result: compressed, in base 85."""
    return base64.b85encode(lzma.compress(content)).decode()


def unpacked(text: str) -> bytes:
    """Read what `packed` wrote.

    Raises:
        ResultsError: `packed` wrote no such text.
    """
    try:
        return lzma.decompress(base64.b85decode(text))
    except (ValueError, lzma.LZMAError) as error:
        raise ResultsError(f"{text[:40]!r} is nothing that the suite packed: {error}") from error
