"""The command `boltgen sign`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from boltgen.artifact.signature import sign
from boltgen.cli.terminal.console import errors_for_people, say
from boltgen.cli.terminal.flags import Debug, Folder
from boltgen.running.artifact import Artifact


def sign_command(
    folder: Folder,
    key: Annotated[
        Path, typer.Option("--key", metavar="FILE", help="An Ed25519 private key in PEM.")
    ],
    debug: Debug = False,
) -> None:
    """Sign a compiled model.

    Its files must be unchanged since the compilation. If BOLTGEN_TRUSTED_KEYS names public keys,
    boltgen loads and serves only models signed by one of them.

    \b
    Examples:
      openssl genpkey -algorithm ed25519 -out key.pem
      openssl pkey -in key.pem -pubout -out key.pub
      boltgen sign resnet50 --key key.pem
      BOLTGEN_TRUSTED_KEYS=key.pub boltgen serve resnet50
    """
    with errors_for_people(debug):
        artifact = Artifact.load(folder, trusted_keys=())
        path = sign(artifact.folder, key)
    say(f"wrote {path}")
