"""The convolutions of Bolt's table 3, unpadded and padded: times PREDICTED by the analytical model.

Nothing is measured: `benchmarks.gpu` has the measurements, for who has a GPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.record import write
from boltgen.arch import Arch, arch_named
from boltgen.ir.dtypes import DType
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.problem import Conv2d
from boltgen.tune.padding import PaddingTimes

# N, H, W, channels, filters, filter, padding. Source: Bolt, table 3.
TABLE_3 = (
    (32, 20, 26, 46, 32, (3, 3), (1, 1)),
    (32, 20, 26, 46, 32, (5, 5), (2, 2)),
    (128, 14, 19, 46, 32, (5, 7), (0, 0)),
    (288, 11, 15, 46, 32, (5, 7), (0, 0)),
    (32, 20, 26, 174, 64, (3, 3), (1, 1)),
    (32, 20, 26, 174, 64, (5, 5), (2, 2)),
)


def predicted(arch: Arch) -> list[dict[str, Any]]:
    """Each convolution's times in microseconds."""
    costs = PaddingTimes(arch, DType.F32)
    rows = []
    for n, h, w, c, k, (r, s), (pad_h, pad_w) in TABLE_3:
        padding = (pad_h, pad_w, pad_h, pad_w)
        problem = Conv2d(n=n, h=h, w=w, c=c, k=k, r=r, s=s, padding=padding)
        both = [(problem, Epilogue()), (replace(problem, c=c + 2), Epilogue())]
        unpadded, padded = costs.kernels_us(both).times_us
        move = costs.move_us(n * h * w * (2 * c + 2) * DType.F16.size_bytes, launches=1)
        rows.append(
            {
                "problem": [n, h, w, c, k, r, s],
                "alignment 2, us": round(unpadded, 2),
                "alignment 8, A written padded, us": round(padded, 2),
                "alignment 8 and a move, us": round(padded + move, 2),
                "speed, A written padded": round(unpadded / padded, 2),
                "speed, with a move": round(unpadded / (padded + move), 2),
                "share of the move": round(move / (padded + move), 3),
            }
        )
    return rows


def main() -> None:
    """Predict for the paper's GPU and an A100, and record."""
    figures = {name: predicted(arch_named(name)) for name in ("sm_75", "sm_80")}
    target = "PREDICTED, not measured: at least 1.6 times the speed of alignment 2"
    write("padding_predicted", {"predicted": figures}, target)


if __name__ == "__main__":
    main()
