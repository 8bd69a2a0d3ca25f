"""A model compiled with a library of kernels and an empty cache: nvcc does not run."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import boltgen
from boltgen import cli
from boltgen.build.nvcc.children import Children

DIGITS = Path(__file__).parent.parent / "models" / "digits" / "digits.onnx"


def test_nvcc_does_not_run_where_a_library_has_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = boltgen.compile(DIGITS, check="none", reuse=False)
    folder = first.save(tmp_path / "digits")
    library = tmp_path / "kernels"
    exported = CliRunner().invoke(
        cli.app, ["library", "export", str(library), "--artifact", str(folder)]
    )
    assert exported.exit_code == 0, exported.output
    assert "objects added, 0 were there" in " ".join(exported.output.split())
    for path in (library, *library.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)

    monkeypatch.setenv("BOLTGEN_CACHE_DIR", str(tmp_path / "empty"))
    programs: list[str] = []
    run = Children.run

    def noted(self: Children, command: tuple[str, ...], **rest: object) -> int:
        programs.append(Path(command[0]).name)
        assert programs[-1] != "nvcc"
        return run(self, command, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Children, "run", noted)
    second = boltgen.compile(DIGITS, check="none", library=library)
    assert [each.symbol for each in second.metadata.kernels] == [
        each.symbol for each in first.metadata.kernels
    ]
    assert set(programs) == {"g++"}  # the linker

    with pytest.raises(AssertionError):
        monkeypatch.setenv("BOLTGEN_CACHE_DIR", str(tmp_path / "other"))
        boltgen.compile(DIGITS, check="none")
