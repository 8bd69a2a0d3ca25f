"""A small artifact that no device runs."""

from __future__ import annotations

from pathlib import Path

from boltgen.runtime.artifact import LIBRARY, SOURCES, Artifact, file_digest
from boltgen.runtime.metadata import (
    KernelInfo,
    Metadata,
    PhaseInfo,
    PlacementInfo,
    RegionInfo,
    TensorInfo,
)

HOSTILE = "a'b\"c`$(touch pwned);\n*/ [red]\u2603"


def write_sample(folder: Path) -> Artifact:
    """An artifact of one region, with names that would break a careless reader."""
    (folder / SOURCES).mkdir(parents=True)
    (folder / LIBRARY).write_bytes(b"library")
    (folder / SOURCES / "k.cu").write_text("// kernel\n")
    metadata = Metadata(
        model=HOSTILE,
        arch="sm_80",
        entry="main",
        inputs=(TensorInfo(name=HOSTILE, shape=(1, 2), dtype="float32"),),
        outputs=(TensorInfo(name="y", shape=(2,), dtype="float16"),),
        regions=(
            RegionInfo(
                symbol="boltgen_0_matmul",
                label="matmul + relu",
                problem="Gemm(m=1)",
                epilogue="relu(acc)",
                kernel="k",
                config="64x64x32_32x32_s3",
                why="the least predicted time",
            ),
        ),
        kernels=(KernelInfo(symbol="k", config="64x64x32_32x32_s3", source=f"{SOURCES}/k.cu"),),
        placements=(
            PlacementInfo(
                operator="matmul + relu", shape=(1, 2), region="boltgen_0_matmul", reason=""
            ),
            PlacementInfo(operator=HOSTILE, shape=(2,), region=None, reason="not a product"),
        ),
        phases=(PhaseInfo(name="link", seconds=0.25),),
        versions={"nvcc": "13.0.88"},
        library_sha256=file_digest(folder / LIBRARY),
    )
    metadata.write(folder)
    return Artifact(folder, metadata)
