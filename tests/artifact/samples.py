"""A small artifact that no device runs."""

from __future__ import annotations

from pathlib import Path

from boltgen.artifact.metadata import (
    GemmInfo,
    KernelInfo,
    Metadata,
    PhaseInfo,
    PlacementInfo,
    RegionInfo,
    TensorInfo,
)
from boltgen.running.artifact import LIBRARY, SOURCES, Artifact, file_digest, source_digests

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
                gemms=(GemmInfo(batch=1, m=1, n=2, k=3),),
                family="gemm",
                tile="64x64x32",
                time_us=3.0,
                origin="measured",
            ),
            RegionInfo(
                symbol="boltgen_1_conv2d",
                label="conv2d + add + add + clip + divide + multiply",
                problem="Gemm(m=1)",
                epilogue="hardswish(acc)",
                kernel="k",
                config="128x64x32_32x32_s3",
                why="the least predicted time",
                gemms=(
                    GemmInfo(batch=8, m=1605632, n=64, k=4608),
                    GemmInfo(batch=8, m=1605632, n=2048, k=4608),
                ),
                family="b2b",
                tile="128x64+2048",
                time_us=9.0,
                origin="predicted",
            ),
        ),
        kernels=(KernelInfo(symbol="k", config="64x64x32_32x32_s3", source=f"{SOURCES}/k.cu"),),
        placements=(
            PlacementInfo(
                operator="matmul + relu",
                shape=(1, 2),
                region="boltgen_0_matmul",
                reason="",
                flops=12,
            ),
            PlacementInfo(
                operator=HOSTILE, shape=(2,), region=None, reason="not a product", flops=3
            ),
        ),
        phases=(PhaseInfo(name="link", seconds=0.25),),
        versions={"nvcc": "13.0.88"},
        library_sha256=file_digest(folder / LIBRARY),
        sources_sha256=source_digests(folder),
    )
    metadata.write(folder)
    return Artifact(folder, metadata)
