"""Write constraints/NAME.txt: the versions of the packages in an environment that passed the tests.

    .venv/bin/python constraints/freeze.py > constraints/tests.txt
    .venv-serve/bin/python constraints/freeze.py > constraints/serve.txt

A package that has dropped Python 3.10 is not fixed there: pip takes its last release for 3.10.
"""

from __future__ import annotations

from importlib.metadata import distributions

from packaging.specifiers import SpecifierSet

_OLDEST = "3.10.99"
_OURS = {"boltgen", "pip"}


def main() -> None:
    """Print a line for each installed package."""
    lines = {}
    for package in distributions():
        name = package.metadata["Name"].lower().replace("_", "-")
        # A build for the CPU has the version of the others.
        line = f"{name}=={package.version.partition('+')[0]}"
        pythons = SpecifierSet(package.metadata.get("Requires-Python") or "")
        lines[name] = line if pythons.contains(_OLDEST) else f"{line}; python_version >= '3.11'"
    print(*(lines[name] for name in sorted(lines.keys() - _OURS)), sep="\n")


if __name__ == "__main__":
    main()
