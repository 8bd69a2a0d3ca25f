"""Archives of `torch.export.save` in which something would run code are refused by name."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import Dim

from boltgen.errors import ModelImportError
from boltgen.frontend.torch.archive import check_archive
from boltgen.frontend.torch.program import read_program


class Evil:
    """An object whose pickle runs a command."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.canary}",)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleDict({"a-b c": torch.nn.Linear(8, 8)})
        self.register_buffer("shift", torch.ones(8))

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.parts["a-b c"](x) + self.shift + torch.tensor([1.0] * 8)
        y = torch.cond(x.shape[0] > 5, lambda t: t + 1, lambda t: t - 1, (y,))
        scaled = torch.vmap(lambda row: row * row.sum())(y) * mask
        return {"y (raw)": scaled, "flat": scaled.reshape(x.shape[0] * 2, -1)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of dynamic sizes, a branch, a vmap and names that are no identifiers."""
    path = tmp_path_factory.mktemp("saved") / "m.pt2"
    rows = Dim("rows", min=2, max=64)
    program = torch.export.export(
        Model().eval(),
        (torch.zeros(4, 8),),
        {"mask": torch.ones(4, 8)},
        dynamic_shapes={"x": {0: rows}, "mask": {0: rows}},
    )
    torch.export.save(program, path)
    return path


def _rewritten(path: Path, folder: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """An archive with other members, whose names are without the archive's own folder."""
    with zipfile.ZipFile(path) as old:
        root = old.namelist()[0].split("/")[0]
        members = {name.removeprefix(f"{root}/"): old.read(name) for name in old.namelist()}
    change(members)
    made = folder / "evil.pt2"
    with zipfile.ZipFile(made, "w") as new:
        for name, content in members.items():
            new.writestr(f"evil/{name}", content)
    return made


def _refused(path: Path, canary: Path) -> str:
    with pytest.raises(ModelImportError) as raised:
        read_program(path).module()
    assert not canary.exists()
    return str(raised.value)


def _pickled(value: object) -> bytes:
    data = io.BytesIO()
    torch.save(value, data)
    return data.getvalue()


def test_a_program_is_loaded_as_it_was_saved(saved: Path) -> None:
    x, mask = torch.randn(7, 8), torch.ones(7, 8)
    loaded = read_program(saved).module()(x, mask=mask)
    expected = torch.export.load(saved).module()(x, mask=mask)
    assert loaded.keys() == {"y (raw)", "flat"}
    for name, tensor in loaded.items():
        torch.testing.assert_close(tensor, expected[name])


@pytest.mark.parametrize("kind", ["sample_inputs", "weights", "constants"])
def test_a_pickle_of_more_than_tensors_is_refused(saved: Path, tmp_path: Path, kind: str) -> None:
    canary = tmp_path / "canary"
    evil = _pickled((Evil(canary), {}))
    member = {"sample_inputs": "model.pt", "weights": "weight_0", "constants": "tensor_0"}[kind]

    def change(members: dict[str, bytes]) -> None:
        members[f"data/{kind}/{member}"] = evil
        if kind != "sample_inputs":
            listed = f"data/{kind}/model_{kind}_config.json"
            form = json.loads(members[listed])
            for payload in form["config"].values():
                payload["use_pickle"] = payload["path_name"] == member
            members[listed] = json.dumps(form).encode()

    message = _refused(_rewritten(saved, tmp_path, change), canary)
    assert f"data/{kind}/{member}" in message
    assert "posix.system" in message


@pytest.mark.parametrize("kind", ["weights", "constants"])
def test_a_pickle_in_an_older_place_is_refused(saved: Path, tmp_path: Path, kind: str) -> None:
    canary = tmp_path / "canary"

    def change(members: dict[str, bytes]) -> None:
        members[f"data/{kind}/model.pt"] = _pickled({"a": Evil(canary)})

    message = _refused(_rewritten(saved, tmp_path, change), canary)
    assert f"data/{kind}/model.pt" in message


def test_an_object_among_the_constants_is_refused(saved: Path, tmp_path: Path) -> None:
    import pickle

    canary = tmp_path / "canary"

    def change(members: dict[str, bytes]) -> None:
        listed = "data/constants/model_constants_config.json"
        form = json.loads(members[listed])
        for payload in form["config"].values():
            payload["path_name"] = "opaque_obj_0"
        members[listed] = json.dumps(form).encode()
        members["data/constants/opaque_obj_0"] = pickle.dumps(Evil(canary))

    message = _refused(_rewritten(saved, tmp_path, change), canary)
    assert "data/constants/opaque_obj_0" in message


@pytest.mark.parametrize(
    "member",
    ["data/aotinductor/model/a.so", "DATA/sample_inputs/model.pt", "data/executorch/m.pte"],
)
def test_a_member_of_another_kind_is_refused(saved: Path, tmp_path: Path, member: str) -> None:
    def change(members: dict[str, bytes]) -> None:
        members[member] = b"\x7fELF"

    message = _refused(_rewritten(saved, tmp_path, change), tmp_path / "canary")
    assert member in message


def test_the_format_of_older_versions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.pt2"
    with zipfile.ZipFile(path, "w") as old:
        old.writestr("version", "8.2")
        old.writestr("serialized_example_inputs.pt", _pickled(Evil(tmp_path / "canary")))
    assert "PyTorch 2.7 or older" in _refused(path, tmp_path / "canary")


def _set(form: Any, key: str, text: str) -> bool:
    """Set the first text under `key` in `form`."""
    if isinstance(form, dict):
        for name, value in form.items():
            if name == key and isinstance(value, (str, list)):
                form[name] = text if isinstance(value, str) else [text]
                return True
    children = form.values() if isinstance(form, dict) else form if isinstance(form, list) else ()
    return any(_set(each, key, text) for each in children)


_EVIL = "__import__('os').system('touch CANARY')"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("expr_str", _EVIL),
        ("expr_str", 'Mul("' + _EVIL + '")'),
        ("expr_str", "Symbol('s0').__class__"),
        ("expr_str", "(lambda: 1)()"),
        ("expr_str", "Pow(9, Pow(9, 999999999))"),
        ("expr_str", "lambdify(1, 2)"),
        ("target", "torch.os.system"),
        ("target", "torch.hub.load"),
        ("target", "torch.ops.load_library"),
        ("target", "torch.ops.aten.__class__.mro"),
        ("target", "torch.ops.aten.from_file.default"),
        ("target", "_operator.methodcaller"),
        ("target", "#os:system"),
        ("as_name", "x=" + _EVIL),
        ("forward_arg_names", "x=" + _EVIL),
        ("parameter_name", f'a" + {_EVIL} + "'),
        ("in_spec", json.dumps([1, {"type": None, "__enum__": True, "fqn": "this:a", "name": ""}])),
        ("in_spec", json.dumps([1, {"type": "builtins.dict", "context": json.dumps([_EVIL])}])),
        ("out_spec", json.dumps([1, {"type": "collections.defaultdict", "context": "{}"}])),
    ],
)
def test_a_text_that_could_run_code_is_refused_by_its_key(
    saved: Path, tmp_path: Path, key: str, text: str
) -> None:
    canary = tmp_path / "canary"

    def change(members: dict[str, bytes]) -> None:
        form = json.loads(members["models/model.json"])
        assert _set(form, key, text.replace("CANARY", str(canary)))
        members["models/model.json"] = json.dumps(form).encode()

    message = _refused(_rewritten(saved, tmp_path, change), canary)
    assert f"models/model.json in it is not plain: {key} is" in message


@pytest.mark.parametrize("key", ["metadata", "as_string", "guards_code"])
def test_a_value_with_the_name_of_free_text_is_checked(
    saved: Path, tmp_path: Path, key: str
) -> None:
    canary = tmp_path / "canary"

    def change(members: dict[str, bytes]) -> None:
        form = json.loads(members["models/model.json"])
        values = form["graph_module"]["graph"]["tensor_values"]
        expression = {"as_expr": {"expr_str": _EVIL.replace("CANARY", str(canary)), "hint": None}}
        values[key] = next(iter(values.values())) | {"sizes": [expression]}
        form["graph_module"]["graph"]["nodes"][0]["outputs"] = [{"as_tensor": {"name": key}}]
        members["models/model.json"] = json.dumps(form).encode()

    assert "expr_str" in _refused(_rewritten(saved, tmp_path, change), canary)


def test_guards_are_not_compiled(saved: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    def change(members: dict[str, bytes]) -> None:
        form = json.loads(members["models/model.json"])
        form["guards_code"] = [_EVIL.replace("CANARY", str(canary))]
        members["models/model.json"] = json.dumps(form).encode()

    read_program(_rewritten(saved, tmp_path, change)).module()
    assert not canary.exists()


@pytest.mark.parametrize("name", ["parameter", "node"])
def test_a_name_with_source_in_it_is_refused(saved: Path, tmp_path: Path, name: str) -> None:
    canary = tmp_path / "canary"
    source = "x=" + _EVIL.replace("CANARY", str(canary))

    def change(members: dict[str, bytes]) -> None:
        if name == "parameter":
            listed = "data/weights/model_weights_config.json"
            form = json.loads(members[listed])
            key, payload = form["config"].popitem()
            form["config"][f'{key}"{source}'] = payload
            members[listed] = json.dumps(form).encode()
        else:
            text = members["models/model.json"].decode()
            members["models/model.json"] = text.replace('"x"', json.dumps(source)).encode()

    assert "not plain" in _refused(_rewritten(saved, tmp_path, change), canary)


def test_a_damaged_archive_is_no_program(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    path.write_bytes(b"PK\x05\x06" + b"\x00" * 18)
    with pytest.raises(Exception, match=r"."):
        check_archive(path)
    with pytest.raises(ModelImportError, match=r"not a program that torch\.export\.save wrote"):
        read_program(path)
