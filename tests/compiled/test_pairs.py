"""Gates in one kernel with both of their products, in whole models on the virtual GPU."""

from __future__ import annotations

import pytest
import torch

import boltgen
from boltgen.device.vgpu import Vgpu
from boltgen.running.artifact import Artifact
from tests.conformance.gated import MODELS, WIDTH, SwiGlu, assert_right, network


def _judged(artifact: Artifact, net: torch.nn.Module, rows: int, checking: Vgpu) -> list[str]:
    (name,) = (each.name for each in artifact.metadata.inputs)
    x = torch.randn(rows, WIDTH)
    checking.clear_launches()
    (found,) = artifact.run({name: x.numpy()}).values()
    assert_right(found, net, x)
    assert [finding.message for finding in checking.findings()] == []
    return [launch.kernel for launch in checking.launches()]


def _open_rows(net: torch.nn.Module) -> torch.export.ExportedProgram:
    rows = torch.export.Dim("rows", min=1, max=300)
    return torch.export.export(net, (torch.randn(2, WIDTH),), dynamic_shapes=({0: rows},))


@pytest.mark.parametrize("made", MODELS)
def test_a_gate_is_one_launch_of_any_number_of_rows(
    made: type[torch.nn.Module], checking: Vgpu
) -> None:
    net = network(made)
    artifact = boltgen.compile(_open_rows(net), arch="sm_80")
    assert any("two products of one tensor" in note for note in artifact.metadata.notes)
    for rows in (1, 67, 300):
        kernels = _judged(artifact, net, rows, checking)
        ours = [each for each in kernels if "move" not in each and each.startswith("boltgen")]
        assert len(ours) == 2, kernels


def test_without_fusing_the_products_stay_apart(checking: Vgpu) -> None:
    net = network(SwiGlu)
    artifact = boltgen.compile(_open_rows(net), arch="sm_80", fuse=False)
    kernels = _judged(artifact, net, 67, checking)
    ours = [each for each in kernels if "move" not in each and each.startswith("boltgen")]
    assert len(ours) == 3, kernels
