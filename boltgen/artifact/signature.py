"""Signatures of compiled models: Ed25519 over `metadata.json`.

`metadata.json` has the digests of the library and all sources. `metadata.json.sig` has the 64 bytes
of the signature in Base64; it is not signed itself. Source: RFC 8032; the package cryptography does
the arithmetic.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO

from boltgen.artifact.metadata import FILE_NAME
from boltgen.errors import ArtifactError, BoltgenError
from boltgen.installation import install_command
from boltgen.intake.files import read_regular, written_whole

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

SIGNATURE = f"{FILE_NAME}.sig"
_MOST_BYTES = 1 << 16  # the largest size of a key or signature


def sign(folder: Path, key: Path) -> Path:
    """Sign the artifact in `folder` with the private key in the PEM file `key`; return the file.

    Raises:
        BoltgenError: `key` has no Ed25519 key without a passphrase, or the folder cannot be
            written.
    """
    private = _private_key(key)
    path = folder / SIGNATURE
    try:
        text = base64.b64encode(private.sign((folder / FILE_NAME).read_bytes()))
        with written_whole(path, _is_signature) as staged:
            staged.write_bytes(text + b"\n")
    except OSError as error:
        raise BoltgenError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def check_signature(folder: Path, keys: Sequence[Path]) -> None:
    """Check that one of the public `keys` (PEM files) verifies the signature of `folder`.

    Raises:
        ArtifactError: there is no signature, or none of these keys verifies it.
        BoltgenError: a key cannot be read, or is not an Ed25519 key.
    """
    public = [_public_key(key) for key in keys]
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

    path = folder / SIGNATURE
    named = ", ".join(map(str, keys))
    try:
        signature = base64.b64decode(read_regular(path, _MOST_BYTES), validate=False)
        signed = (folder / FILE_NAME).read_bytes()
    except FileNotFoundError as error:
        raise ArtifactError(
            f"{error.filename} does not exist, and BOLTGEN_TRUSTED_KEYS asks for a signature by "
            f"{named}: `boltgen sign` makes one"
        ) from None
    except (OSError, binascii.Error) as error:
        raise ArtifactError(f"{path} cannot be read: {error}") from error
    for key in public:
        try:
            key.verify(signature, signed)
        except InvalidSignature:
            continue
        return
    raise ArtifactError(
        f"{path} is no signature of {folder / FILE_NAME} by {named}: the file was changed, or "
        "signed with another key; do not run it, or sign it again"
    )


def _is_signature(file: BinaryIO) -> bool:
    """Return whether a file has the format that `sign` writes: 64 bytes in Base64."""
    try:
        return len(base64.b64decode(file.read(_MOST_BYTES).strip(), validate=True)) == 64
    except binascii.Error:
        return False


def _private_key(path: Path) -> Ed25519PrivateKey:
    serialization = _serialization()
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415

    try:
        key = serialization.load_pem_private_key(_content(path), password=None)
    except (ValueError, TypeError) as error:
        raise BoltgenError(
            f"{path} is no private key in PEM without a passphrase: {error}"
        ) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise BoltgenError(
            f"{path} is no Ed25519 key: `openssl genpkey -algorithm ed25519` makes one"
        )
    return key


def _public_key(path: Path) -> Ed25519PublicKey:
    serialization = _serialization()
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415

    try:
        key = serialization.load_pem_public_key(_content(path))
    except ValueError as error:
        raise BoltgenError(f"{path} is no public key in PEM: {error}") from error
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise BoltgenError(f"{path} is no Ed25519 key: `openssl pkey -pubout` writes one")
    return key


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, _MOST_BYTES)
    except OSError as error:
        raise BoltgenError(f"the key {path} cannot be read: {error.strerror or error}") from error


def _serialization() -> ModuleType:
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    except ImportError as error:
        raise BoltgenError(
            f"signatures need the package cryptography: {install_command('sign')}"
        ) from error
    return serialization
