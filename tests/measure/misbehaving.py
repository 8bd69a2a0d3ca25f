"""Workers that greet as they should, and then do not answer."""

from __future__ import annotations

import sys

from boltgen.ir.outcome import Fault
from boltgen.measure.channel import OpenChannel, local_worker

# What a worker does with its first question, the fault that this is, and words of the reason. The
# kernel ends a process by SIGKILL where memory runs out.
WAYS = {
    "ends": ("sys.exit(3)", Fault.CRASH, "the worker ended with status 3 while it ran the kernel"),
    "runs out of memory": (
        "os.kill(os.getpid(), signal.SIGKILL)",
        Fault.CRASH,
        "the worker was ended by signal SIGKILL while it ran the kernel",
    ),
    "hangs": ("time.sleep(3600)", Fault.TIMEOUT, "no answer within 0.5 s"),
    "prints": (
        'say(b"Segmentation fault")',
        Fault.PROTOCOL,
        "the worker printed something else: not JSON",
    ),
}


def misbehaving(greeting: bytes | None, way: str) -> OpenChannel:
    """Return a starter of workers that do as WAYS[way] says when asked.

    Before that they take a line and say `greeting`, where there is one.
    """
    greets = "" if greeting is None else f"sys.stdin.readline(); say({greeting!r})"
    script = f"""
import os, signal, sys, time
def say(line):
    sys.stdout.buffer.write(line.rstrip() + b"\\n")
    sys.stdout.buffer.flush()
{greets}
sys.stdin.readline()
print("about to misbehave", file=sys.stderr, flush=True)
{WAYS[way][0]}
"""
    return local_worker((sys.executable, "-c", script))
