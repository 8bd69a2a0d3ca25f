"""What is checked of a library. Arrow: metadata to launches."""

from __future__ import annotations

from boltgen.arch import arch_named
from boltgen.check.protocol import AnyLaunch, Launch, MoveLaunch
from boltgen.codegen.move import move_symbol
from boltgen.errors import ArtifactError
from boltgen.ir.chain import layers_of
from boltgen.ir.move import Move
from boltgen.ir.problem import BatchedGemm
from boltgen.runtime.metadata import Metadata
from boltgen.space.boundary import boundary_problems
from boltgen.tune.outcome import Trial

# (images, height, width, source channels, target channels): several tiles and less than one, whole
# vectors and odd extents on either side, channels beyond the source's, channels dropped.
_MOVED = (
    (2, 16, 24, 3, 4),
    (1, 9, 7, 3, 8),
    (2, 14, 19, 46, 48),
    (3, 13, 5, 48, 46),
    (1, 12, 12, 72, 72),
    (1, 1, 1, 9, 1),
)


def launches_of(metadata: Metadata) -> dict[str, tuple[AnyLaunch, ...]]:
    """The launches with which each kernel of a library is checked, by its symbol.

    Every region that runs a kernel adds those of its own problem, swizzle and slices of K.

    Raises:
        ArtifactError: the metadata does not say what the kernels compute.
    """
    found: dict[str, dict[AnyLaunch, None]] = {}
    for region in metadata.regions:
        if region.trial is None:
            raise ArtifactError(
                f"{metadata.model}: an older version of boltgen has not written what kernel "
                f"{region.kernel} computes: compile the model again"
            )
        launches = launches_of_trial(region.trial, metadata.arch)
        found.setdefault(region.kernel, {}).update(dict.fromkeys(launches))
    for move in metadata.layout_transforms:
        found[move_symbol(move)] = dict.fromkeys(launches_of_move(move))
    return {symbol: tuple(launches) for symbol, launches in found.items()}


def launches_of_trial(trial: Trial, arch: str) -> tuple[Launch, ...]:
    """The launches with which the kernel of `trial` is checked: at its problem's boundaries."""
    problems = boundary_problems(trial.problem, trial.epilogue, trial.config, arch_named(arch))
    return tuple(
        Launch(
            problem=problem,
            epilogue=trial.epilogue,
            swizzle=trial.swizzle,
            split_k=trial.split_k,
            is_sliced=is_sliced,
        )
        for problem in problems
        for is_sliced in _slicings(trial)
    )


def _slicings(trial: Trial) -> tuple[bool, ...]:
    """Whether operands of the epilogue may be those of one product of a batch."""
    layers = layers_of(trial.problem, trial.epilogue)
    is_batched = isinstance(layers[0].problem, BatchedGemm)
    has_operands = any(layer.epilogue.loads for layer in layers)
    return (False, True) if is_batched and has_operands else (False,)


def launches_of_move(move: Move) -> tuple[MoveLaunch, ...]:
    """The launches with which a layout transform is checked."""
    return tuple(
        MoveLaunch(
            move=move,
            images=images,
            height=height,
            width=width,
            source_channels=source,
            target_channels=target,
        )
        for images, height, width, source, target in _MOVED
    )
