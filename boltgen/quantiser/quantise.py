"""`boltgen.quantize`: an FP32 model and samples in, a QDQ model out."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from boltgen.arch import Arch
from boltgen.device.asked_arch import asked_arch
from boltgen.errors import BoltgenError, InputError
from boltgen.intake.files import written_whole
from boltgen.options import DEFAULT_ARCH
from boltgen.quantiser.gains import NoTimesError, times_of, whole_us
from boltgen.quantiser.layers import Product, layers_of, weights_of
from boltgen.quantiser.observers import Array, Histogram, Observer, Step, step_of
from boltgen.quantiser.qdq import IntegerWeight, quantised_weight, with_quantised
from boltgen.quantiser.smoothing import smoothed
from boltgen.running.arrays import sample_of

DEFAULT_MOST_ERROR = 0.05
DEFAULT_SMOOTH = 0.5
# The most samples on which the error of each layer is measured.
_MOST_SAMPLES = 16
_PRODUCER = "boltgen quantize"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerReport:
    """A layer, and why it is quantised or not.

    `error` is the model's error with this layer alone in integers. Times are predicted, in us.
    """

    name: str
    operator: str
    is_quantised: bool
    reason: str
    error: float | None = None
    float_us: float | None = None
    integer_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisationReport:
    """All layers of a model, and the `error` of the model that was written.

    `float_us` and `quantised_us` are the predicted times of the whole model, in FP16 and as it was
    written.

    An error is the root of the mean square of a result's differences from the FP32 model's, over
    the root of the mean square of that result; of several results the largest counts.
    """

    output: Path
    layers: tuple[LayerReport, ...]
    error: float
    float_us: float
    quantised_us: float
    smoothed: tuple[str, ...]

    @property
    def quantised(self) -> int:
        """The number of layers in integers."""
        return sum(each.is_quantised for each in self.layers)


def quantize(
    model: str | Path,
    data: Iterable[Mapping[str, Array] | Path | str] | Mapping[str, Array] | Path | str,
    output: str | Path,
    *,
    arch: str = DEFAULT_ARCH,
    observer: Observer | str = Observer.MSE,
    smooth: float = DEFAULT_SMOOTH,
    most_error: float = DEFAULT_MOST_ERROR,
    keep: Sequence[str] = (),
    even_if_slower: bool = False,
) -> QuantisationReport:
    """Write `model` with integers where they are faster on `arch` and accurate enough.

    `data` has samples: arrays by the names of the inputs, or `.npz` files with them. Each product
    of an activation by a constant is a layer. A layer stays in floats if `keep` names it, or if the
    model's error exceeds `most_error`: then layers go back to floats, those first whose error is
    largest for the time that they save. Unless `even_if_slower`, it also stays if it is predicted
    to be as fast in floats, or if the whole model is, with what quantises between layers. `smooth`
    moves outliers of normalised activations into weights, from 0, nothing, to 1, all.

    The result is a QDQ model, which `boltgen.compile` takes.

    Raises:
        ModelImportError: the model cannot be read, or is quantised already.
        InputError: a sample does not fit the model, or `output` cannot be written.
        UnknownArchError: `arch` is not in the table.
        ToolchainError: no TVM with Relax is installed.
        BoltgenError: an argument has a value that it cannot have; ONNX Runtime is missing; no layer
            can be quantised.
    """
    row, how = asked_arch(arch), _observer(observer)
    if not 0.0 <= smooth <= 1.0:
        raise BoltgenError(f"smooth is {smooth:g}: give a number from 0 to 1")
    if not most_error > 0.0:
        raise BoltgenError(f"most_error is {most_error:g}: give a share above 0, such as 0.05")
    loader = importlib.import_module("boltgen.quantiser.model")
    source = loader.load(Path(model))
    given = [data] if isinstance(data, (Mapping, str, Path)) else list(data)
    samples = loader.samples_of(source, [sample_of(each) for each in given])
    layers = layers_of(source.graph)
    if unknown := sorted(set(keep) - {each.name for each in layers}):
        known = ", ".join(each.name for each in layers[:5])
        raise BoltgenError(f"no layer to keep is named {unknown[0]}: give one such as {known}")
    if not layers:
        raise BoltgenError(f"{model} has no product of an activation by a constant to quantise")
    seen, given_model = _observed(loader, source, layers, samples), source
    changed: tuple[str, ...] = ()
    if smooth:
        source, changed = smoothed(source, layers, seen, smooth)
        if changed:
            seen = _observed(loader, source, layers, samples)
    steps = {each.activation: step_of(seen[each.activation], how) for each in layers}
    judged = samples[:_MOST_SAMPLES]
    runner = loader.Runner(given_model)
    right = [runner.results(each) for each in judged]
    trial = _Trial(loader, source, layers, steps, list(zip(judged, right, strict=True)))
    reports = [_first_report(each, trial, seen, row, keep=each.name in keep) for each in layers]
    if not even_if_slower:
        reports = [_if_faster(each) for each in reports]
    reports = _accurate(reports, trial, most_error)

    @cache
    def time_us(names: tuple[str, ...]) -> float:
        return whole_us(trial.model(names), samples[0], row)

    if not even_if_slower:
        reports = _fastest(reports, time_us)
    chosen = _chosen(reports)
    _write(trial.model(chosen), Path(output))
    return QuantisationReport(
        output=Path(output),
        layers=tuple(reports),
        error=trial.error(chosen),
        float_us=time_us(()),
        quantised_us=time_us(chosen),
        smoothed=changed,
    )


def _observer(given: Observer | str) -> Observer:
    try:
        return Observer(given)
    except ValueError:
        known = ", ".join(each.value for each in Observer)
        raise BoltgenError(f"there is no observer {given}: give one of {known}") from None


def _observed(
    loader: Any, model: Any, layers: Sequence[Product], samples: Sequence[Mapping[str, Array]]
) -> dict[str, Histogram]:
    """Return what was seen of the tensors that layers read and make, in two runs of all samples."""
    read = dict.fromkeys(each.activation for each in layers)
    rows = {each.activation for each in layers if each.operator != "Conv"}
    names = dict.fromkeys([*read, *(each.output for each in layers)])
    runner = loader.Runner(model, tuple(names))
    seen = {name: Histogram() for name in names}
    for sample in samples:
        tensors = runner.tensors(sample)
        for name in names:
            if name in read and not np.isfinite(tensors[name]).all():
                raise InputError(
                    f"tensor {name} becomes NaN or infinite on a sample: quantise a model that is "
                    "right on all samples"
                )
            seen[name].see_range(tensors[name])
            if name in rows and tensors[name].ndim > 1:
                seen[name].see_channels(tensors[name])
    for sample in samples:
        tensors = runner.tensors(sample)
        for name in read:
            seen[name].see_counts(tensors[name])
    return seen


class _Trial:
    """Makes QDQ models of some layers, and measures their errors on samples with right results."""

    def __init__(
        self,
        loader: Any,
        source: Any,
        layers: Sequence[Product],
        steps: Mapping[str, Step],
        judged: Sequence[tuple[Mapping[str, Array], Sequence[Array]]],
    ) -> None:
        self._loader, self._source = loader, source
        self._samples, self._right = zip(*judged, strict=True)
        self._layers = {each.name: each for each in layers}
        self._steps, self.weights = steps, weights_of(source.graph, layers)
        self._integers: dict[str, IntegerWeight] = {
            each.weight: quantised_weight(self.weights[each.weight], each.axis) for each in layers
        }

    def model(self, names: Sequence[str]) -> Any:
        """Return the model with the named layers in integers."""
        chosen = [self._layers[name] for name in names]
        return with_quantised(self._source, chosen, self._steps, self._integers)

    def error(self, names: Sequence[str]) -> float:
        """Return the error of the model with the named layers in integers."""
        if not names:
            return 0.0
        runner = self._loader.Runner(self.model(names))
        return relative_error([runner.results(each) for each in self._samples], self._right)


def relative_error(found: Sequence[Sequence[Array]], right: Sequence[Sequence[Array]]) -> float:
    """Return the largest relative error of a result on all samples, as the report defines it.

    Equal infinities differ by nothing. A result whose shape depends on its numbers, as that of a
    detector's suppression does, judges nothing.
    """
    errors = [0.0]
    for pairs in zip(zip(*found, strict=True), zip(*right, strict=True), strict=True):
        if any(ours.shape != wanted.shape for ours, wanted in zip(*pairs, strict=True)):
            continue
        ours, wanted = (np.concatenate([x.astype(np.float64).ravel() for x in p]) for p in pairs)
        differs = ours != wanted
        whole = float(np.linalg.norm(wanted[np.isfinite(wanted)])) or 1.0
        errors.append(float(np.linalg.norm(ours[differs] - wanted[differs])) / whole)
    return max(errors)


def _first_report(
    layer: Product, trial: _Trial, seen: Mapping[str, Histogram], arch: Arch, *, keep: bool
) -> LayerReport:
    """Judge a layer by its times; a layer that may be quantised gets its error."""
    report = LayerReport(
        name=layer.name, operator=layer.operator, is_quantised=False, reason="you keep it"
    )
    if keep:
        return report
    try:
        float_us, integer_us = times_of(layer, trial.weights[layer.weight], seen, arch)
    except NoTimesError as refusal:
        return replace(report, reason=str(refusal))
    return replace(
        report,
        is_quantised=True,
        reason="its error is small enough",
        error=trial.error([layer.name]),
        float_us=float_us,
        integer_us=integer_us,
    )


def _if_faster(report: LayerReport) -> LayerReport:
    """Put a layer back that is no faster in integers."""
    if not report.is_quantised:
        return report
    if _gain(report) <= 0.0:
        reason = "it is predicted to be no faster in integers"
        return replace(report, is_quantised=False, reason=reason)
    return replace(report, reason="it is faster in integers")


def _fastest(
    reports: Sequence[LayerReport], time_us: Callable[[tuple[str, ...]], float]
) -> list[LayerReport]:
    """Keep the layers in integers that gain most, as many as make the whole model fastest.

    All of them are tried, three quarters, and so on.
    """
    ranked = sorted((each for each in reports if each.is_quantised), key=_gain, reverse=True)
    counts = sorted({round(len(ranked) * share / 4) for share in range(5)}, reverse=True)

    def whole(count: int) -> float:
        kept = {each.name for each in ranked[:count]}
        return time_us(tuple(each.name for each in reports if each.name in kept))

    slower = ranked[min(counts, key=whole) :]
    return _put_back(reports, slower, "the whole model is predicted to be faster without it")


def _put_back(
    reports: Sequence[LayerReport], dropped: Sequence[LayerReport], reason: str
) -> list[LayerReport]:
    """Return all reports, the dropped layers in floats for a reason."""
    names = {each.name for each in dropped}
    return [
        replace(each, is_quantised=False, reason=reason) if each.name in names else each
        for each in reports
    ]


def _gain(report: LayerReport) -> float:
    """Return the time that integers save in a layer that has both times, in us."""
    assert report.float_us is not None
    assert report.integer_us is not None
    return report.float_us - report.integer_us


def _accurate(
    reports: Sequence[LayerReport], trial: _Trial, most_error: float
) -> list[LayerReport]:
    """Put back as few layers as the error asks for: first the worst ones for their gain in time."""
    ranked = sorted((each for each in reports if each.is_quantised), key=_loss_per_gain)
    # Errors of layers hardly cancel, so that the number to keep is found by halving.
    low, high = 0, len(ranked)
    if trial.error([each.name for each in ranked]) <= most_error:
        low = high
    while low < high:
        middle = (low + high + 1) // 2
        if trial.error([each.name for each in ranked[:middle]]) <= most_error:
            low = middle
        else:
            high = middle - 1
    return _put_back(reports, ranked[low:], f"with it the model's error exceeds {most_error:g}")


def _loss_per_gain(report: LayerReport) -> float:
    assert report.error is not None
    gain = _gain(report)
    return report.error**2 / gain if gain > 0.0 else inf


def _chosen(reports: Sequence[LayerReport]) -> tuple[str, ...]:
    return tuple(each.name for each in reports if each.is_quantised)


def _write(model: Any, output: Path) -> None:
    model.producer_name = _PRODUCER
    try:
        with written_whole(output, _is_ours) as staged:
            staged.write_bytes(model.SerializeToString())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{output} cannot be written: {reason}") from error


def _is_ours(file: BinaryIO) -> bool:
    """Return whether a file is a model that `quantize` wrote: its maker's name comes first."""
    return _PRODUCER.encode() in file.read(64)
