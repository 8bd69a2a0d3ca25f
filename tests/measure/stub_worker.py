"""A worker without a device, which does what the symbol of a request says."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from boltgen.ir.outcome import DeviceIdentity, DeviceKind, Failure, Fault, Timing
from boltgen.measure.lines import from_line, to_line
from boltgen.measure.protocol import (
    VERSION,
    Answer,
    FromClient,
    FromWorker,
    Greeting,
    Refusal,
)

DEVICE = DeviceIdentity(
    kind=DeviceKind.CUDA,
    name="Stub",
    arch="sm_80",
    sm_count=108,
    clock_mhz=1410,
    memory_clock_mhz=1215,
    memory_bytes=1 << 30,
    driver="580.1",
)


def timing(median_us: float = 7.0) -> Timing:
    return Timing(
        median_us=median_us,
        p20_us=median_us,
        p80_us=median_us,
        low_us=median_us,
        high_us=median_us,
        repeats=10,
        launches=20,
        cold_l2=True,
        clock_mhz=1410.0,
    )


def say(message: object) -> None:
    write(to_line(FromWorker, message))


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def lost(number: int) -> Answer:
    failure = Failure(fault=Fault.DEVICE_LOST, reason="the GPU has fallen off the bus (999)")
    return Answer(number=number, outcome=failure, fatal=True)


def crash() -> None:
    print("about to crash", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def noise() -> None:
    """No line at all, without end."""
    while True:
        write(b"\xff" * 65536)


def half() -> None:
    write(b'{"type": "Answer", "num')
    sys.exit(0)


def children() -> None:
    """One child, which outlives a worker that is killed alone."""
    os.fork()
    time.sleep(3600)


WITHOUT_ANSWER = {
    "crash": crash,
    "exit": lambda: sys.exit(3),
    "hang": lambda: time.sleep(3600),
    "garbage": lambda: write(b"Segmentation fault (core dumped)\n"),
    "noise": noise,
    "unknown_field": lambda: write(b'{"type": "Answer", "number": 1, "surprise": 2}\n'),
    "half": half,
    "children": children,
}


def do(symbol: str, number: int, gone: Path) -> None:
    answer = Answer(number=number, outcome=timing())
    match symbol:
        case "good":
            say(answer)
        case _ if symbol.startswith("boltgen_"):  # a kernel of a library
            say(answer)
        case "nan":
            write(to_line(FromWorker, answer).replace(b"7.0", b"NaN"))
        case "another":
            say(replace(answer, number=number + 1))
        case "killed_once":
            if not (marker := gone.with_name("killed")).exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            say(answer)
        case "vanish":
            gone.touch()
            say(lost(number))
            sys.exit(0)
        case _:
            WITHOUT_ANSWER[symbol]()


def main() -> None:
    start, gone = sys.argv[1], Path(sys.argv[2])
    sys.stdin.readline()
    if gone.is_file():
        say(Refusal(reason="cudaSetDevice: no CUDA-capable device is detected (100)"))
        return
    if start == "silent":
        time.sleep(3600)
    if start == "dies":
        print("libcudart.so.13: cannot open shared object file", file=sys.stderr)
        sys.exit(1)
    version = VERSION - 1 if start == "old" else VERSION
    say(
        Greeting(
            version=version, device=DEVICE, uuid="GPU-1", budget_bytes=1 << 30, reads_clock=True
        )
    )
    for line in iter(sys.stdin.buffer.readline, b""):
        request = from_line(FromClient, line)
        do(request.symbol, request.number, gone)


if __name__ == "__main__":
    main()
