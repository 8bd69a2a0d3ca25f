"""Signed models: what is loaded where public keys are trusted, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from typer.testing import CliRunner

import boltgen
from boltgen.artifact.metadata import FILE_NAME
from boltgen.artifact.signature import SIGNATURE, sign
from boltgen.cli.program import app
from boltgen.errors import ArtifactError, BoltgenError
from boltgen.running.artifact import LIBRARY, Artifact
from models.digits import MODEL_PATH

RUNNER = CliRunner()


def pair(folder: Path, name: str, private: Any) -> tuple[Path, Path]:
    """A private key and its public one, as PEM files."""
    files = folder / f"{name}.pem", folder / f"{name}.pub"
    files[0].write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    files[1].write_bytes(
        private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return files


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("digits") / "digits.boltgen"
    boltgen.compile(MODEL_PATH, arch="sm_80").save(made)
    return made


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return pair(tmp_path, "ours", ed25519.Ed25519PrivateKey.generate())


@pytest.fixture
def folder(compiled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(compiled, tmp_path / "model"))


def test_a_signed_model_is_loaded(
    folder: Path, keys: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = pair(tmp_path, "foreign", ed25519.Ed25519PrivateKey.generate())[1]
    assert RUNNER.invoke(app, ["sign", str(folder), "--key", str(keys[0])]).exit_code == 0
    monkeypatch.setenv("BOLTGEN_TRUSTED_KEYS", f"{foreign}:{keys[1]}")
    artifact = boltgen.load(folder)
    artifact.save(tmp_path / "copy")
    with pytest.raises(ArtifactError, match=SIGNATURE):
        boltgen.load(tmp_path / "copy")


def test_one_that_is_not_is_refused(
    folder: Path, keys: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boltgen.load(folder)
    monkeypatch.setenv("BOLTGEN_TRUSTED_KEYS", str(keys[1]))
    with pytest.raises(ArtifactError, match=f"{SIGNATURE}.*ours.pub.*boltgen sign"):
        boltgen.load(folder)
    for command in ("inspect", "check", "report"):
        done = RUNNER.invoke(app, [command, str(folder)])
        assert done.exit_code != 0
        assert SIGNATURE in done.output
    sign(folder, pair(tmp_path, "foreign", ed25519.Ed25519PrivateKey.generate())[0])
    with pytest.raises(ArtifactError, match=f"{SIGNATURE}.*ours.pub"):
        boltgen.load(folder)


@pytest.mark.parametrize("name", [FILE_NAME, LIBRARY, SIGNATURE])
def test_one_that_was_changed_is_refused(
    name: str, folder: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sign(folder, keys[0])
    monkeypatch.setenv("BOLTGEN_TRUSTED_KEYS", str(keys[1]))
    boltgen.load(folder)
    changed = bytearray((folder / name).read_bytes())
    at = changed.index(b"digits") if name == FILE_NAME else len(changed) // 2
    changed[at] = ord("e") if changed[at] != ord("e") else ord("f")
    (folder / name).write_bytes(changed)
    with pytest.raises(ArtifactError, match=name.replace(".", r"\.")):
        boltgen.load(folder)


def test_a_source_that_was_changed_is_refused(
    folder: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sign(folder, keys[0])
    monkeypatch.setenv("BOLTGEN_TRUSTED_KEYS", str(keys[1]))
    source = folder / boltgen.load(folder).metadata.kernels[0].source
    source.write_text(source.read_text() + "\n")
    with pytest.raises(ArtifactError, match=source.name):
        boltgen.load(folder)


def test_what_is_no_key_is_named(folder: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    elliptic = pair(tmp_path, "elliptic", ec.generate_private_key(ec.SECP256R1()))
    (tmp_path / "text.pem").write_text("no key")
    for wrong in (elliptic[0], keys[1], tmp_path / "text.pem", tmp_path / "none.pem"):
        with pytest.raises(BoltgenError, match=wrong.name):
            sign(folder, wrong)
        assert not (folder / SIGNATURE).exists()
    sign(folder, keys[0])
    for wrong in (elliptic[1], keys[0], tmp_path / "text.pem", tmp_path / "none.pem"):
        with pytest.raises(BoltgenError, match=wrong.name):
            Artifact.load(folder, trusted_keys=(keys[1], wrong))


def test_a_damaged_model_is_not_signed(folder: Path, keys: tuple[Path, Path]) -> None:
    with (folder / LIBRARY).open("ab") as library:
        library.write(b"x")
    done = RUNNER.invoke(app, ["sign", str(folder), "--key", str(keys[0])])
    assert done.exit_code != 0
    assert LIBRARY in done.output
    assert not (folder / SIGNATURE).exists()
