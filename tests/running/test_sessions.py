"""Sessions: many threads, tensors that others own, and no growth."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

import boltgen
from boltgen.device.vgpu import Vgpu
from boltgen.errors import ArtifactError, DeviceError, InputError
from boltgen.running.artifact import Artifact

WIDTH, MOST = 64, 8
TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
rows (float[batch, 64] x) => (float[batch, 64] y) {
  a = MatMul (x, w)
  y = Relu (a)
}
"""


def save_rows(path: Path, seed: int) -> Path:
    """A model of one product, whose batch is open."""
    model = onnx.parser.parse_model(TEXT)
    weights = np.random.default_rng(seed).normal(0, WIDTH**-0.5, (WIDTH, WIDTH))
    model.graph.initializer.append(numpy_helper.from_array(weights.astype(np.float32), "w"))
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def vgpu() -> Vgpu:
    found = boltgen.activate("vgpu").vgpu
    assert found is not None
    return found


@pytest.fixture(scope="module")
def artifacts(vgpu: Vgpu, tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, Artifact]:
    del vgpu
    folder = tmp_path_factory.mktemp("sessions")
    shapes = {"x": (f"1..{MOST}", WIDTH)}
    made = [
        boltgen.compile(
            save_rows(folder / f"{seed}.onnx", seed), arch="sm_80", shapes=shapes, finite=seed == 1
        )
        for seed in (0, 1)
    ]
    return boltgen.load(made[0].save(folder / "0")), boltgen.load(made[1].save(folder / "1"))


@pytest.fixture
def artifact(artifacts: tuple[Artifact, Artifact]) -> Artifact:
    return artifacts[0]


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, (count, WIDTH)).astype(np.float32)


def test_many_threads_run_one_artifact(artifact: Artifact) -> None:
    """One virtual machine for all of them would lose their tensors."""
    given = [rows(1 + each % MOST, each) for each in range(24)]
    expected = [artifact.run({"x": x})["y"] for x in given]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda x: artifact.run({"x": x})["y"], given))
    for have, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(have, want)


def test_sessions_and_artifacts_run_side_by_side(artifacts: tuple[Artifact, Artifact]) -> None:
    given = [rows(1 + each % MOST, each) for each in range(8)]
    expected = [[artifact.run({"x": x})["y"] for x in given] for artifact in artifacts]
    sessions = [artifact.open() for artifact in artifacts for _ in range(2)]
    with ThreadPoolExecutor(len(sessions)) as pool:
        found = list(
            pool.map(lambda session: [session.run({"x": x})["y"] for x in given], sessions)
        )
    for position, outputs in enumerate(found):
        for have, want in zip(outputs, expected[position // 2], strict=True):
            np.testing.assert_array_equal(have, want)


def test_hundreds_of_runs_allocate_nothing_on_the_device(artifact: Artifact, vgpu: Vgpu) -> None:
    session = artifact.open()
    session.warm_up()
    before = {each.number for each in vgpu.leaks()}
    for each in range(300):
        session.run({"x": rows(1 + each % MOST)})
    assert {each.number for each in vgpu.leaks()} == before


def test_launches_are_forgotten_where_nobody_reads_them(artifact: Artifact, vgpu: Vgpu) -> None:
    session = artifact.open()
    session.warm_up()
    assert vgpu.launches()
    session.forget_launches()
    assert vgpu.launches() == []
    session.close()
    session.forget_launches()


def test_a_closed_session_gives_its_memory_back(artifact: Artifact, vgpu: Vgpu) -> None:
    artifact.open().close()
    before = len(vgpu.leaks())
    for _ in range(5):
        session = artifact.open()
        session.warm_up()
        assert len(vgpu.leaks()) > before
        session.close()
        session.close()
        assert len(vgpu.leaks()) == before
    with pytest.raises(DeviceError, match="closed"):
        session.run({"x": rows(1)})


def test_tensors_of_pytorch_and_of_the_device_are_read_where_they_are(artifact: Artifact) -> None:
    import tvm

    session = artifact.open()
    x = rows(3)
    expected = session.run({"x": x})["y"]
    np.testing.assert_array_equal(session.run({"x": torch.from_numpy(x)})["y"], expected)
    there = tvm.runtime.tensor(x, tvm.cuda(0))
    np.testing.assert_array_equal(session.run({"x": there})["y"], expected)
    np.testing.assert_array_equal(session.run({"x": x[::-1]})["y"], expected[::-1])


def test_a_view_that_pytorch_negates_when_it_is_read_keeps_its_sign(artifact: Artifact) -> None:
    x = rows(3)
    view = torch.complex(torch.zeros(3, WIDTH), -torch.from_numpy(x)).conj().imag
    assert view.is_neg()
    session = artifact.open()
    expected = session.run({"x": x})["y"]
    np.testing.assert_array_equal(session.run({"x": view})["y"], expected)


def test_outputs_on_the_device_outlive_later_calls(artifact: Artifact) -> None:
    session = artifact.open()
    first, second = rows(3, 1), rows(3, 2)
    expected = session.run({"x": first})["y"]
    kept = session.run_on_device({"x": first})["y"]
    session.run_on_device({"x": second})
    assert kept.__dlpack_device__()[0] == 2  # DLPack's kDLCUDA
    np.testing.assert_array_equal(kept.numpy(), expected)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (torch.zeros(2, WIDTH, dtype=torch.bfloat16), "'x' has dtype bfloat16, expected float32"),
        (torch.zeros(2, WIDTH + 1), r"'x' has shape \(2, 65\)"),
        (torch.zeros(MOST + 1, WIDTH), f"'x' has batch = {MOST + 1}"),
        (torch.zeros(2, WIDTH).to_sparse(), "'x', a Tensor"),
    ],
)
def test_tensors_that_do_not_fit(artifact: Artifact, value: torch.Tensor, said: str) -> None:
    with pytest.raises(InputError, match=said):
        artifact.open().run({"x": value})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none(artifacts: tuple[Artifact, Artifact], value: float) -> None:
    """A model that says so refuses them, saved and loaded; others compute with them."""
    x = rows(3)
    x[1, 2] = value
    any_number, finite = artifacts
    assert not np.isfinite(any_number.run({"x": x})["y"][1]).all()
    with pytest.raises(InputError, match=rf"input 'x' has {value} at \(1, 2\).*--finite"):
        finite.run({"x": x})


def test_a_file_is_loaded_once(artifact: Artifact) -> None:
    one, other = artifact.open(), boltgen.load(artifact.folder).open()
    assert one._library is other._library


@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_a_library_with_other_tensors_than_its_metadata_is_refused(
    artifact: Artifact, tmp_path: Path, kind: str
) -> None:
    folder = artifact.save(tmp_path / "copy")
    infos = getattr(artifact.metadata, kind)
    replace(artifact.metadata, **{kind: (*infos, replace(infos[0], name="z"))}).write(folder)
    damaged = boltgen.load(folder)
    inputs = {info.name: rows(2) for info in damaged.metadata.inputs}
    with pytest.raises(ArtifactError, match=f"names 2 {kind}, the library has 1.*compile the"):
        damaged.run(inputs)


def test_inputs_by_position_are_those_by_name(artifact: Artifact) -> None:
    array = rows(3)
    expected = artifact.run({"x": array})["y"]
    tensor = torch.from_numpy(array).requires_grad_()
    for given in ([array], (tensor,), array, tensor, {"x": tensor}):
        np.testing.assert_array_equal(artifact.run(given)["y"], expected)
