"""Run a trial in a process of its own; return its report, and how it ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.record import ROOT

MARK = "RESULT "
_PYTHON = Path(sys.executable)

Row: TypeAlias = dict[str, Any]


def run_module(
    module: str,
    arguments: Sequence[str],
    limit_s: float,
    *,
    python: Path = _PYTHON,
    environment: Mapping[str, str] | None = None,
) -> Row:
    """The last account of `python -m module`, which `benchmarks.trials.account` prints.

    "outcome" is the account's own where the process ends well, or "ran"; else it is "refused" where
    there is a refusal, or it says how the process ended.
    """
    try:
        done = subprocess.run(
            [str(python), "-m", module, *arguments],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        printed = (error.stdout or b"").decode(errors="replace")
        return {**_last_account(printed), "outcome": f"took over {limit_s:.0f} s"}
    account = _last_account(done.stdout)
    if "refusal" in account:
        return {**account, "outcome": "refused"}
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        return {**account, "outcome": f"ended with status {done.returncode}: {last}"}
    return {"outcome": "ran", **account}


def _last_account(printed: str) -> Row:
    lines = [line for line in printed.splitlines() if line.startswith(MARK)]
    account: Row = json.loads(lines[-1].removeprefix(MARK)) if lines else {}
    return account
