"""Every convolution and dense layer of ResNet-50 with its fused epilogue, as tasks.

Source: He et al., Deep Residual Learning for Image Recognition, table 1; strides on the 3x3
convolutions, as in torchvision.
"""

from __future__ import annotations

from boltgen.ir.dtypes import Layout
from boltgen.ir.elementwise import BinaryOp, ElementwiseGraph, LoadKind
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.tuning.choice.select import Task

_STAGES = ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7))


def biased(*, residual: bool = False, relu: bool = False) -> ElementwiseGraph:
    """acc + bias, then a residual and ReLU if asked for."""
    graph = ElementwiseBuilder()
    x = graph.binary(BinaryOp.ADD, 0, graph.load(LoadKind.ROW))
    if residual:
        x = graph.binary(BinaryOp.ADD, x, graph.load(LoadKind.TENSOR))
    if relu:
        graph.unary(UnaryOp.RELU, x)
    return graph.build()


def _conv(batch: int, size: int, c: int, k: int, *, kernel: int, stride: int) -> Conv2d:
    pad = kernel // 2
    return Conv2d(
        n=batch,
        h=size,
        w=size,
        c=c,
        k=k,
        r=kernel,
        s=kernel,
        stride=(stride, stride),
        padding=(pad, pad, pad, pad),
    )


def resnet50_tasks(batch: int) -> tuple[Task, ...]:
    """54 tasks, one per layer, each as it runs."""
    relu = biased(relu=True)
    layers = [(_conv(batch, 224, 3, 64, kernel=7, stride=2), relu)]
    channels, size = 64, 56
    for width, depth, out_size in _STAGES:
        for block in range(depth):
            stride = size // out_size
            layers.append((_conv(batch, size, channels, width, kernel=1, stride=1), relu))
            layers.append((_conv(batch, size, width, width, kernel=3, stride=stride), relu))
            if block == 0:
                layers.append(
                    (_conv(batch, size, channels, 4 * width, kernel=1, stride=stride), biased())
                )
            last = _conv(batch, out_size, width, 4 * width, kernel=1, stride=1)
            layers.append((last, biased(residual=True, relu=True)))
            channels, size = 4 * width, out_size
    tasks = [Task(workload=Workload.of(conv, epilogue)) for conv, epilogue in layers]
    dense = Gemm(m=batch, n=1000, k=channels, b_layout=Layout.COLUMN)
    return (*tasks, Task(workload=Workload.of(dense, biased())))
