"""The program `boltgen`: open the standard streams, run the command line, end with its status."""

from __future__ import annotations

import io
import os
import signal
import sys

from boltgen.errors import BoltgenError
from boltgen.installation import refuse_other_platforms
from boltgen.settings import forget_odd_terminal_sizes

_REFUSED, _INTERRUPTED, _TERMINATED = 1, 130, 143
_LAST_STREAM = 2


def main() -> None:
    """Run the command line; it ends the process."""
    signal.signal(signal.SIGTERM, _terminate)
    _open_streams()
    sys.exit(obey())


def _terminate(*_: object) -> None:
    """End in order: stop compilers, and remove unfinished files."""
    sys.exit(_TERMINATED)


def obey() -> int:
    """Run the command line of this process, and return the exit status."""
    try:
        refuse_other_platforms()
    except BoltgenError as error:
        print(f"error: {error}", file=sys.stderr)
        return _REFUSED
    try:
        forget_odd_terminal_sizes()
        # Importing takes a second, in which users press Ctrl-C too.
        from boltgen import cli  # noqa: PLC0415

        return cli.main()
    except KeyboardInterrupt:
        return _INTERRUPTED


def _open_streams() -> None:
    """Open closed standard streams: else a file would get a stream's number, and its output."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= _LAST_STREAM:
        os.set_inheritable(number, True)
    os.close(number)
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
        elif isinstance(stream, io.TextIOWrapper):
            # A name may be no UTF-8, or the terminal may be in a language of few letters.
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
