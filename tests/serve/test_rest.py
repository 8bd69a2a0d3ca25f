"""The protocol's REST form: what is decoded, and what is refused by the name of its field."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boltgen.errors import InputError, ServingError
from boltgen.serve.rest import check_load, decoded, encoded
from boltgen.serve.tensors import DATATYPES, datatype_of, from_bytes, from_numbers


def body(*inputs: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **more}).encode()


def tensor(**changed: Any) -> dict[str, Any]:
    made = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]} | changed
    return {name: each for name, each in made.items() if each is not None}


@pytest.mark.parametrize("datatype", DATATYPES)
def test_tensors_as_json_and_as_bytes(datatype: str) -> None:
    array = np.array([[0, 1], [1, 1]]).astype(DATATYPES[datatype])
    numbers = array.astype(bool).tolist() if datatype == "BOOL" else [[0, 1], [1, 1]]
    for data in (numbers, [*numbers[0], *numbers[1]]):
        found = decoded(body(tensor(datatype=datatype, data=data)), None).inputs["x"]
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)
    head = body(tensor(datatype=datatype, data=None, parameters={"binary_data_size": array.nbytes}))
    request = decoded(head + array.tobytes(), str(len(head)))
    np.testing.assert_array_equal(request.inputs["x"], array)
    for binary in (True, False):
        asked = decoded(body(parameters={"binary_data_output": binary}), None)
        content, length = encoded("m", "1", asked, {"y": array})
        told = json.loads(content[:length])["outputs"][0]
        assert (told["datatype"], told["shape"]) == (datatype, [2, 2])
        if binary:
            assert content[length:] == array.tobytes()
            assert told["parameters"] == {"binary_data_size": array.nbytes}
        else:
            assert length is None
            assert told["data"] == [*numbers[0], *numbers[1]]


def test_what_is_asked_for() -> None:
    request = decoded(
        body(
            tensor(),
            id="seven",
            outputs=[{"name": "y", "parameters": {"binary_data": True}}, {"name": "z"}],
            parameters={"timeout": 250},
        ),
        None,
    )
    assert (request.request_id, request.timeout_us) == ("seven", 250)
    assert request.outputs == {"y": True, "z": False}
    answer = {"y": np.zeros(1, np.float32), "z": np.ones(1, np.int64), "other": np.zeros(1)}
    content, length = encoded("m", "3", request, answer)
    told = json.loads(content[:length])
    assert [each["name"] for each in told["outputs"]] == ["y", "z"]
    assert (told["id"], told["model_version"]) == ("seven", "3")


@pytest.mark.parametrize(
    ("content", "length", "said"),
    [
        (b"", None, "no JSON"),
        (b"{", None, "no JSON"),
        (b"\xff\xfe", None, "no JSON"),
        (b"[" * 100_000, None, "no JSON"),
        (b"[]", None, "no JSON object"),
        (b"{}", None, "inputs is no list"),
        (b'{"inputs": {}}', None, "inputs is no list"),
        (b'{"inputs": [7]}', None, r"inputs\[0\]"),
        (b'{"inputs": [], "id": 7}', None, "id is no text"),
        (b'{"inputs": [], "parameters": []}', None, "parameters"),
        (b'{"inputs": [], "parameters": {"binary_data_output": 1}}', None, "binary_data_output"),
        (b'{"inputs": [], "parameters": {"timeout": -1}}', None, "timeout"),
        (b'{"inputs": [], "outputs": [{}]}', None, r"outputs\[0\]"),
        (b'{"inputs": []}', "x", "content-length.*0 to 14"),
        (b'{"inputs": []}', "15", "content-length.*0 to 14"),
        (b'{"inputs": []}', "-1", "content-length"),
        (b'{"inputs": []}   ', "14", "3 bytes after"),
        (body(tensor(), tensor()), None, "'x' is given twice"),
        (body(tensor(data=None)), None, "'x'.*binary_data_size"),
        (body(tensor(parameters={"binary_data_size": 4})), None, "'x'.*binary_data_size"),
        (body(tensor(data=None, parameters={"binary_data_size": 4})), None, "'x'.*0 to 0"),
        (body(tensor(data=None, parameters={"binary_data_size": True})), None, "'x'"),
        (body(tensor(datatype="FP8")), None, "'x'.*'FP8'.*BF16"),
        (body(tensor(datatype=["FP32"])), None, "'x'.*datatype"),
        (body(tensor(shape=[2, -2])), None, "'x'.*shape"),
        (body(tensor(shape=[2.0, 2])), None, "'x'.*shape"),
        (body(tensor(shape=[True, 4])), None, "'x'.*shape"),
        (body(tensor(shape=4)), None, "'x'.*shape"),
        (body(tensor(shape=[5])), None, "'x'.* 5 elements, 4"),
        (body(tensor(shape=[2**31 - 1] * 9)), None, "'x'.*elements, 4"),
        (body(tensor(data="1234")), None, "'x': data is no list"),
        (body(tensor(data=[[1, 2], [3]])), None, "'x'"),
        (body(tensor(data=["1", "2", "3", "4"])), None, "'x'.*FP32"),
        (body(tensor(data=[1, 2, 3, None])), None, "'x'"),
        (body(tensor(data=[1, 2, 3, {}])), None, "'x'"),
        (body(tensor(data=[1, 2, 3, 1e39])), None, r"'x': 1e\+39.*FP32"),
        (body(tensor(data=[1, 2, 3, 70000.0], datatype="FP16")), None, "'x': 70000.0.*FP16"),
        (body(tensor(data=[1, 2, 3, 4.5], datatype="INT32")), None, "'x'.*INT32"),
        (body(tensor(data=[1, 2, 3, 300], datatype="UINT8")), None, "'x': 300.*UINT8"),
        (body(tensor(data=[1, 2, 3, 2**70], datatype="INT64")), None, "'x'.*INT64"),
        (body(tensor(data=[1, 0, 1, 0], datatype="BOOL")), None, "'x'.*BOOL"),
        (body(tensor(shape=[1] * 33)), None, "'x': shape is no list of 32 extents at most"),
        (body(tensor(shape=[2**31 - 1] * 100_000)), None, "'x': shape is no list of 32 extents"),
        (body(tensor()).replace(b"4]", b"1e999]"), None, "'x': a number is beyond.*FP32"),
        (
            body(tensor(datatype="BF16")).replace(b"4]", b"-1e999]"),
            None,
            "'x': a number is beyond.*BF16",
        ),
        (
            body(tensor(data=None, parameters={"shared_memory_region": "r"})),
            None,
            "'shared_memory_region' of input 'x' is not taken",
        ),
        (
            body(outputs=[{"name": "y", "parameters": {"classification": 3}}]),
            None,
            "'classification' of output 'y' is not taken",
        ),
        (body(outputs=[{"name": "y"}, {"name": "y"}]), None, "output 'y' is asked for twice"),
    ],
)
def test_what_is_malformed_is_refused_by_name(
    content: bytes, length: str | None, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        decoded(content, length)


@given(st.binary(max_size=60), st.none() | st.text(max_size=4))
def test_no_bytes_do_anything_but_be_refused(content: bytes, length: str | None) -> None:
    with pytest.raises(InputError):
        decoded(content, length)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(["name", "shape", "datatype", "data", "parameters"]), _VALUES)
)
def test_no_field_does_anything_but_be_taken_or_refused(changed: dict[str, Any]) -> None:
    try:
        found = decoded(body(tensor() | changed), None)
    except InputError:
        return
    (array,) = found.inputs.values()
    assert array.dtype in DATATYPES.values()


def test_what_json_has_no_number_for() -> None:
    request = decoded(body(), None)
    for value in (np.inf, np.nan):
        for dtype in (np.float32, ml_dtypes.bfloat16):
            with pytest.raises(InputError, match="'y' holds infinities or NaN"):
                encoded("m", "1", request, {"y": np.array([value]).astype(dtype)})


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_constants_that_are_pythons_and_not_jsons(constant: str) -> None:
    text = body(tensor()).replace(b"1", constant.encode(), 1)
    with pytest.raises(InputError, match=f"the body is no JSON: {constant} is no number"):
        decoded(b'{"id": ' + constant.encode() + b"}", None)
    with pytest.raises(InputError, match="the body is no JSON"):
        decoded(text, None)


def test_types_that_the_protocol_has_not() -> None:
    with pytest.raises(ServingError, match="complex64"):
        datatype_of("complex64")
    with pytest.raises(ServingError, match="no such type"):
        datatype_of("nonsense")


def test_bytes_that_are_no_truth_value() -> None:
    with pytest.raises(InputError, match=r"'x'.*BOOL is neither 0 nor 1"):
        from_bytes("x", "BOOL", [3], b"\0\1\2")


@pytest.mark.parametrize("content", [b"", b" ", b"{}", b'{"parameters": {}}', b'{"other": 1}'])
def test_a_load_that_asks_for_nothing_else(content: bytes) -> None:
    check_load("m", content)
    check_load("m", b'{"parameters": {"unload_dependents": false}}', ("unload_dependents",))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[]", "no JSON object"),
        (b'{"parameters": 3}', "parameters of the request"),
        (b'{"parameters": {"config": "{}"}}', "'config': model 'm' is loaded as its folder has"),
        (b'{"parameters": {"file:1/model.onnx": ""}}', "'file:1/model.onnx'"),
    ],
)
def test_a_load_that_asks_for_more(content: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_load("m", content)


def test_no_elements_at_all() -> None:
    assert from_numbers("x", "INT32", [0, 3], []).shape == (0, 3)
