"""Choose the tests of a tier by what they need and what they cost.

    quick   nothing beyond Python and NumPy: about a minute
    test    quick, what needs TVM, PyTorch or ONNX alone, and a share of each area that compiles
            kernels: at most 15 minutes on two cores with empty caches
    rest    everything that `test` leaves out
    all     everything

A kernel's compilation takes 5 to 60 seconds, and nothing else comes near it. So the share has tests
whose kernels are few, or are the kernels of other tests in it.
"""

from __future__ import annotations

from functools import cache

from tests.needs import ROOT, Need, needs_of

TIERS = ("quick", "test", "rest", "all")

# Modules that need nothing and still take many seconds.
LONG = (
    "tests/families/test_knobs.py",
    "tests/test_model_against_data.py",
    "tests/tuning/test_course.py",
    "tests/tuning/test_fit_cost_model.py",
    "tests/tuning/test_learned.py",
    "tests/tuning/test_rest.py",
    "tests/tuning/test_select.py",
    "tests/tuning/test_select_symbolic.py",
    "tests/tuning/test_session.py",
)
# What a module may need and still be in `test` as a whole.
_IMPORTED = frozenset({Need.TVM, Need.TORCH, Need.ONNX})

# The share of the areas that compile or start processes: prefixes of test names, by area.
_NUMERICS = "tests/kernels/test_kernel_numerics.py::test_kernel_agrees_with_the_oracle"
_WGMMA = "tests/kernels/test_wgmma.py::test_kernel_agrees_with_the_oracle"
_DEPTHWISE, _RECURRENT = "tests/kernels/test_depthwise.py", "tests/kernels/test_recurrent.py"
_SEPARABLE, _VOLUMES = "tests/kernels/test_separable.py", "tests/kernels/test_conv3d.py"
_INTEGERS = "tests/kernels/test_integers.py"
_OF_BYTES = "tests/kernels/test_integers_sm90.py::test_a_kernel_equals_the_oracle_at_its_boundaries"
_EQUALS = "test_a_kernel_equals_the_oracle_at_its_size_and_its_boundaries"
_COMPUTES = "test_a_kernel_computes_what_it_is_made_for_and_its_boundaries"
_REFUSES = "test_bad_arguments_are_refused"
_RELAY = "tests/test_relay_suite.py::test_in_the_environment_with_relay"
_SERVER = "tests/test_serving_suite.py::test_in_the_environment_with_kserve"
SHARE: dict[str, tuple[str, ...]] = {
    "building": (
        *(
            "tests/build/test_archive.py",
            "tests/build/test_cache.py",
            "tests/build/test_compile.py",
        ),
        *("tests/build/test_kernel_library.py", "tests/build/test_link.py"),
        *("tests/build/test_ptx.py", "tests/build/test_toolchain.py", "tests/build/test_vgpu.py"),
        *("tests/codegen/test_adapter.py", "tests/codegen/test_adapter_symbolic.py"),
        "tests/codegen/test_golden.py::test_kernels_are_rendered_as_recorded",
        "tests/build/test_usage.py",
    ),
    "kernels": (
        *("tests/kernels/test_activations.py", "tests/kernels/test_adapter_execution.py"),
        *("tests/kernels/test_attention.py", "tests/kernels/test_chain_adapter.py"),
        *("tests/kernels/test_grouped.py", "tests/kernels/test_moves.py"),
        *("tests/kernels/test_norm.py", "tests/kernels/test_prologue.py"),
        "tests/kernels/test_skinny.py",
        *(f"{_NUMERICS}[{name}" for name in ("split-", "batch-", "tiny-", "first")),
        *(f"{_DEPTHWISE}::{test}" for test in (f"{_COMPUTES}[plain]", f"{_REFUSES}[plain-")),
        *(f"{_RECURRENT}::{test}" for test in (f"{_COMPUTES}[gru]", f"{_REFUSES}[gru-")),
        *(f"{_SEPARABLE}::{test}" for test in (f"{_COMPUTES}[plain]", f"{_REFUSES}[plain-")),
        *(f"{_VOLUMES}::{test}" for test in (f"{_COMPUTES}[bias]", _REFUSES)),
        *(f"{_INTEGERS}::{test}" for test in (f"{_EQUALS}[channels]", f"{_EQUALS}[image]")),
        *(f"{_INTEGERS}::test_{test}" for test in ("every_", "integers_", "what_")),
        *(f"{_WGMMA}[{name}-" for name in ("pingpong", "conv-pingpong")),
        f"{_OF_BYTES}[channels]",
    ),
    "measuring": (
        *("tests/measure/test_abi.py", "tests/measure/test_client.py"),
        *("tests/measure/test_worker.py", "tests/tuner/test_tuner.py"),
    ),
    "models": (
        *("tests/compiled/test_compile_and_run.py", "tests/device/test_device.py"),
        *("tests/conformance/test_conformance.py", "tests/test_derived_extents.py"),
        "tests/test_convolution_models.py::test_models_of_pytorch[factored]",
        "tests/test_depthwise_models.py::test_blocks_of_pytorch[inverted]",
    ),
    "relay": (f"{_RELAY}[test_cases.py]", f"{_RELAY}[test_masks.py]"),
    "serving": (f"{_SERVER}[test_answering.py]", f"{_SERVER}[test_clients.py]"),
    "tool": ("tests/cli/test_ending.py",),
    "virtual GPU": (
        *("tests/vgpu/test_checks.py", "tests/vgpu/test_memory_ops.py"),
        *("tests/vgpu/test_float_ops.py", "tests/vgpu/test_integer_ops.py"),
        *("tests/vgpu/test_launches.py", "tests/vgpu/test_matrix_ops.py"),
        *("tests/vgpu/test_negative_controls.py", "tests/vgpu/test_warp_ops.py"),
    ),
}


def has_module(tier: str, module: str) -> bool:
    """Return whether `tier` has a test of `module` ("tests/ir/test_move.py"), perhaps."""
    whole, part = _in_test(module)
    match tier:
        case "all":
            return True
        case "quick":
            return not needs_of(ROOT / module) and module not in LONG
        case "test":
            return whole or bool(part)
        case "rest":
            return not whole
        case _:
            raise ValueError(f"tier {tier!r} is none of {', '.join(TIERS)}")


def has_test(tier: str, name: str) -> bool:
    """Return whether `tier` has the test `name` ("tests/ir/test_move.py::test_x[1]")."""
    module = name.partition("::")[0]
    if not has_module(tier, module):
        return False
    whole, part = _in_test(module)
    is_in_test = whole or name.startswith(part)
    return {"test": is_in_test, "rest": not is_in_test}.get(tier, True)


@cache
def _in_test(module: str) -> tuple[bool, tuple[str, ...]]:
    """Whether `test` has all of a module, else the prefixes of those tests that it has."""
    prefixes = [each for area in SHARE.values() for each in area if each.startswith(module)]
    whole = needs_of(ROOT / module) <= _IMPORTED or module in prefixes
    return whole, tuple(prefixes)
