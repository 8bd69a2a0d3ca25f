"""What is predicted of every item, until it is measured; marked so in the report.

Ours is the analytical model's time of the best configuration. The vendor's is a roofline: the
arch's peak of the tensor cores (on sm_90 that of wgmma, which sm_80's kernels do not reach), its
memory's bandwidth, and a launch. No vendor's kernel reaches it, so these ratios are on the low
side.

Of whole models the analytical model knows only products, and nothing of TVM's schedules. There the
kernels of both, ours and TVM's alone, are those that `model_work` has counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from benchmarks.gpu import shapes
from benchmarks.gpu.model_tasks import kept_tasks
from benchmarks.gpu.model_work import ALONE, OURS, kept_works, total_us
from benchmarks.gpu.page import TUNING
from benchmarks.gpu.predicted_tuning import predicted_tuning
from benchmarks.gpu.races import least_bytes
from boltgen.arch import Arch
from boltgen.families.b2b.model import best_chain_config
from boltgen.families.constants import model_constants
from boltgen.families.cutlass2.traits import execution_problem
from boltgen.ir.dtypes import DType
from boltgen.ir.epilogue import Epilogue
from boltgen.ir.problem import Conv2d, Gemm, Problem
from boltgen.ir.reference import output_shape
from boltgen.ir.workload import execution_chain
from boltgen.tuning.padding import PaddingTimes
from boltgen.tuning.select import AnyTask, ChainTask, ModelCosts, distinct
from tests.chain_cases import paper_chains
from tests.tuning.resnet50_layers import resnet50_tasks

_F16_BYTES = 2


@cache
def predicted_items(arch: Arch) -> Mapping[str, dict[str, Any]]:
    """A result for each item that can be predicted, in the form of a slice's."""
    found = {}
    for section, problems in (("gemm", shapes.gemms()), ("conv", shapes.convolutions())):
        for name, problem in problems.items():
            vendor_us = _roofline_us(problem, arch)
            found[f"{section}/{name}"] = {
                **_result(_race_us(problem, arch), {"vendor": vendor_us}),
                "flops": problem.flops,
                "bytes": least_bytes(problem),
            }
    for name, problem in shapes.fused().items():
        plain_us = _best_us(problem, Epilogue(), arch)
        behind_us = plain_us + _elementwise_us(problem, arch)
        for activation, op in shapes.ACTIVATIONS.items():
            fused_us = _best_us(problem, shapes.bias_then(op), arch)
            found[f"epilogue/{name}-{activation}"] = _result(fused_us, {"unfused": behind_us})
    for name, chain in paper_chains().items():
        single_us = sum(_best_us(one.problem, one.epilogue, arch) for one in chain.layers)
        _, fused = best_chain_config(execution_chain(chain), arch)
        found[f"b2b/{name}"] = _result(fused.time_us, {"unfused": single_us})
    for name, problem in shapes.unaligned().items():
        found[f"padding/{name}"] = _padding(problem, arch)
    return found | _models(arch) | _tuning(arch)


def _models(arch: Arch) -> dict[str, dict[str, Any]]:
    """Section models, of an arch whose models are counted: launches one behind the other.

    What is TVM's in ours the vendor has too, at the memory's bandwidth. Ours is also given with the
    analytical model's times of the products, to compare the two ways of predicting.
    """
    launch_us = model_constants().launch_us
    found = {}
    for name, works in kept_works().get(arch.name, {}).items():
        tasks = kept_tasks()[arch.name][name]
        rest = [work for work in works[OURS] if not work.is_ours]
        rest_bytes = sum(work.launches * work.dram_bytes for work in rest)
        rest_launches = sum(work.launches for work in rest)
        vendor_us = sum(task.occurrences * _vendor_us(task, arch) for task in tasks)
        vendor_us += _stream_us(rest_bytes, arch) + rest_launches * launch_us
        ours_us = total_us(works[OURS], launch_us)
        item = _result(ours_us, {"tvm": total_us(works[ALONE], launch_us), "vendor": vendor_us})
        products_us = sum(task.occurrences * _task_us(task, arch) for task in tasks)
        analytical_us = products_us + total_us(rest, launch_us)
        item["columns"]["boltgen_analytical"] = {"median_us": analytical_us}
        found[f"models/{name}"] = item
    return found


def _task_us(task: AnyTask, arch: Arch) -> float:
    if isinstance(task, ChainTask):
        return best_chain_config(task.chain, arch)[1].time_us
    return _best_us(task.problem, task.epilogue, arch)


def _vendor_us(task: AnyTask, arch: Arch) -> float:
    layers = task.chain.layers if isinstance(task, ChainTask) else (task,)
    return sum(_roofline_us(layer.problem, arch) for layer in layers)


def _tuning(arch: Arch) -> dict[str, dict[str, Any]]:
    """The tuner on ResNet-50, from nothing measured to nothing left to try."""
    tasks = distinct(resnet50_tasks(shapes.BATCH))
    bench = predicted_tuning(tasks, arch)
    least_s, most_s = bench.least_us / 1e6, bench.most_us / 1e6
    item = {
        "status": "predicted",
        "tuning_s": [round(least_s, 1), round(most_s, 1)],
        "tasks": len(tasks),
        "verdict": f"predicted: {bench.trials} launches are tried, and keep the device busy for "
        f"{least_s:.0f} s, or {most_s:.0f} s where noise has each take all the samples it may",
    }
    return {TUNING: item}


def _race_us(problem: Gemm | Conv2d, arch: Arch) -> float:
    """What boltgen would run: an image's channels are padded by a move."""
    padded = shapes.padded_image(problem)
    kernel_us = _best_us(padded, Epilogue(), arch)
    if not isinstance(problem, Conv2d) or not isinstance(padded, Conv2d) or padded == problem:
        return kernel_us
    size_bytes = _bytes_of_activations(problem) + _bytes_of_activations(padded)
    return kernel_us + _moved_us(size_bytes, arch)


def _padding(problem: Conv2d, arch: Arch) -> dict[str, Any]:
    """A convolution of table 3: what `padding.run_padding` measures."""
    padded = shapes.aligned(problem)
    unpadded_us, padded_us, producer_us, padded_producer_us = (
        _best_us(one, Epilogue(), arch)
        for one in (problem, padded, shapes.producer(problem), shapes.producer(padded))
    )
    move_us = _moved_us(_bytes_of_activations(problem) + _bytes_of_activations(padded), arch)
    pair_us = padded_producer_us + padded_us
    return {
        **_result(padded_us + move_us, {"unpadded": unpadded_us}),
        "ratios": {
            "unpadded": _ratio(unpadded_us, padded_us + move_us),
            "unpadded_kernel": _ratio(unpadded_us, padded_us),
            "unpadded_pair": _ratio(producer_us + unpadded_us, pair_us),
        },
        "shares": {
            "move": move_us / (padded_us + move_us),
            "wider_producer": (padded_producer_us - producer_us) / pair_us,
        },
    }


def _best_us(problem: Problem, epilogue: Epilogue, arch: Arch) -> float:
    costs = ModelCosts(arch).costs(execution_problem(problem), epilogue).by_config.values()
    return min(cost for cost in costs if isinstance(cost, float))


def _roofline_us(problem: Problem, arch: Arch) -> float:
    tensor_us = problem.flops / (arch.tensor_f32_acc_tflops * 1e6)
    return max(tensor_us, _stream_us(least_bytes(problem), arch)) + model_constants().launch_us


def _stream_us(size_bytes: float, arch: Arch) -> float:
    return size_bytes / (arch.dram_gb_per_s * 1e3)


def _moved_us(size_bytes: float, arch: Arch) -> float:
    """A kernel that moves so much, and does nothing else."""
    return PaddingTimes(arch, DType.F32).move_us(int(size_bytes), launches=1)


def _elementwise_us(problem: Problem, arch: Arch) -> float:
    count = 1
    for extent in output_shape(problem):
        count *= extent
    return _moved_us(2 * count * _F16_BYTES, arch)


def _bytes_of_activations(problem: Conv2d) -> int:
    return problem.n * problem.h * problem.w * problem.c * _F16_BYTES


def _result(ours_us: float, others_us: dict[str, float]) -> dict[str, Any]:
    columns = {"boltgen": ours_us, **others_us}
    return {
        "status": "predicted",
        "columns": {name: {"median_us": us} for name, us in columns.items()},
        "ratios": {name: _ratio(us, ours_us) for name, us in others_us.items()},
    }


def _ratio(theirs_us: float, ours_us: float) -> dict[str, Any]:
    return {"ratio": theirs_us / ours_us, "verdict": "predicted"}
