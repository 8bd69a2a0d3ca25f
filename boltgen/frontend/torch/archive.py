"""Refuse a `torch.export` archive that could run code while it is loaded.

`torch.export.load` unpickles what `weights_only` refuses, loads shared libraries, evaluates the
text of symbolic sizes, calls any function in `torch` that a node names, and compiles Python source
that has the nodes' names in it. Everything here is checked with the reader that loads it, before it
is loaded.
"""

from __future__ import annotations

import ast
import importlib
import io
import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any

from boltgen.errors import ModelImportError

_TRUST = (
    "Remedy: get the file again from its author; or, if you trust it, load it yourself and call "
    "boltgen.compile(torch.export.load(path)) in Python"
)
_PROGRAMS = re.compile(r"models/([^/]+)\.json")
_PAYLOADS = re.compile(r"data/(weights|constants)/(.+)")
_SAMPLES = re.compile(r"data/sample_inputs/[^/]+\.pt")
_HARMLESS = re.compile(r"archive_format|archive_version|byteorder|version|\.data/.+|extra/.+")

_NAME = re.compile(r"[A-Za-z0-9_]*")
# Parts of Python source: without these characters a text in it calls nothing.
_UNSAFE = re.compile(r"[\"'\\()=@;\x00-\x1f]")
_OPERATOR = re.compile(
    r"(_operator\.(?!attrgetter|methodcaller|call)[a-z]\w*"
    r"|math\.[a-z]\w*"
    r"|torch\.(sym_[a-z]\w*|_sym_[a-z]\w*)"
    r"|torch\._functorch\.predispatch\.(_[a-z]\w*|lazy_load_decompositions))"
)
_REGISTERED = re.compile(r"torch\.ops\.([A-Za-z]\w*)((\.(?!__)\w+){1,2})")
# Operators that open a file which the program names.
_FILE_OPERATORS = frozenset({"from_file", "read_file", "write_file"})
# Functions of sympy, and of PyTorch's extension of it, in the text of a size.
_FUNCTIONS = frozenset(
    (
        *("Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Abs", "Max", "Min"),
        *("Eq", "Ne", "Equality", "Unequality", "Gt", "Ge", "Lt", "Le", "And", "Or", "Not", "Xor"),
        *("StrictGreaterThan", "StrictLessThan", "GreaterThan", "LessThan", "ITE", "Piecewise"),
        *("floor", "ceiling", "sign", "Tuple", "ExprCondPair", "FloorDiv", "ModularIndexing"),
        *("Where", "PythonMod", "Mod", "CleanDiv", "CeilToInt", "FloorToInt", "CeilDiv", "LShift"),
        *("RShift", "PowByNatural", "FloatPow", "FloatTrueDiv", "IntTrueDiv", "TruncToFloat"),
        *("IsNonOverlappingAndDenseIndicator", "TruncToInt", "RoundToInt", "RoundDecimal"),
        *("ToFloat", "Identity"),
    )
)
_ARITHMETIC = (
    *(ast.Expression, ast.Load, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.keyword),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.BitAnd, ast.BitOr),
    *(ast.unaryop, ast.boolop, ast.cmpop),
)
_NAMED = frozenset({"Symbol", "Float"})
_POWERS = frozenset({"Pow", "PowByNatural", "FloatPow", "LShift"})
_MOST_TEXT = 4000
_MOST_EXPONENT = 64
# Node metadata is data: it is never evaluated. Guards are dropped after the load.
_FREE = frozenset({"metadata", "guards_code", "torch_version", "as_string", "as_strings"})


def check_archive(path: Path) -> None:
    """Refuse an archive of `torch.export.save` in which anything could run code.

    Raises:
        ModelImportError: it names the member of the archive, and what is in it.
        Exception: the archive is damaged.
    """
    from torch.export.pt2_archive._package import PT2ArchiveReader  # noqa: PLC0415

    with zipfile.ZipFile(path) as archive:
        if "version" in archive.namelist():
            raise ModelImportError(
                f"{path} has the format of PyTorch 2.7 or older, which is not read. Remedy: load "
                "it with that version, and save it with PyTorch 2.8 or newer"
            )
    with PT2ArchiveReader(os.fspath(path)) as reader:
        names = list(reader.get_file_names())
        for name in names:
            if (program := _PROGRAMS.fullmatch(name)) is not None:
                _check_program(path, name, json.loads(reader.read_string(name)))
                _check_payloads(path, program[1], names, reader)
            elif _SAMPLES.fullmatch(name):
                _check_pickle(path, name, reader.read_bytes(name))
            elif not (_PAYLOADS.fullmatch(name) or _HARMLESS.fullmatch(name)):
                raise _refusal(path, name, "no part of a torch.export program, and may hold code")


# The modules that register the operators of quantised programs, by the operators' library.
_REGISTERING = {
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    "torchao": "torchao",
}


def register_operators(path: Path) -> None:
    """Import the modules that register the operators which an archive's programs call.

    Raises:
        ModelImportError: one is not installed.
    """
    from torch.export.pt2_archive._package import PT2ArchiveReader  # noqa: PLC0415

    with PT2ArchiveReader(os.fspath(path)) as reader:
        names = filter(_PROGRAMS.fullmatch, reader.get_file_names())
        text = "".join(str(reader.read_string(name)) for name in names)
    for library, module in _REGISTERING.items():
        if f"torch.ops.{library}." not in text:
            continue
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ModelImportError(
                f"the torch.export program calls operators of {library}, and the module {module} "
                f"is not installed: pip install {module.partition('.')[0]}"
            ) from error


def _refusal(path: Path, member: str, problem: str) -> ModelImportError:
    return ModelImportError(f"{path}: {member} in it is {problem}: it is not loaded. {_TRUST}")


def _check_pickle(path: Path, name: str, content: bytes) -> None:
    """Refuse a pickle that names a function or class beyond tensors and plain values."""
    import torch  # noqa: PLC0415

    if not content:
        return
    try:
        torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except Exception as error:  # torch raises whatever its unpickler met
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        named = f" of {found[1]}" if found else ""
        raise _refusal(path, name, f"a pickle{named} and could run code") from error


def _check_payloads(path: Path, program: str, names: list[str], reader: Any) -> None:
    """Check the weights and constants of a program; raw ones hold no code."""
    for kind in ("weights", "constants"):
        legacy, listed = f"data/{kind}/{program}.pt", f"data/{kind}/{program}_{kind}_config.json"
        if legacy in names:
            _check_pickle(path, legacy, reader.read_bytes(legacy))
            continue
        for key, payload in json.loads(reader.read_string(listed))["config"].items():
            member = f"data/{kind}/{payload['path_name']}"
            if _UNSAFE.search(key):
                raise _refusal(path, listed, f"not plain: the tensor {key!r} has an odd name")
            if payload["path_name"].startswith(("custom_obj_", "opaque_obj_")):
                raise _refusal(path, member, "an object that is no tensor, and could run code")
            if payload["use_pickle"]:
                _check_pickle(path, member, reader.read_bytes(member))


def _check_program(path: Path, member: str, form: Any) -> None:
    """Check each text in a program's JSON by its key."""

    def refuse(key: str, text: object) -> ModelImportError:
        return _refusal(path, member, f"not plain: {key} is {str(text)[:80]!r}, and could run code")

    def check(key: str, value: Any) -> None:
        if key in {"in_spec", "out_spec"}:
            if not _is_plain_tree(value, names=key == "in_spec"):
                raise refuse(key, value)
        elif key in _FREE and _is_flat(value):
            return
        elif isinstance(value, dict):
            for name, each in value.items():
                if key.endswith("_values") and not _NAME.fullmatch(name):
                    raise refuse(key, name)
                if _UNSAFE.search(name) and key != "range_constraints":
                    raise refuse(key, name)
                check(name, each)
        elif isinstance(value, list):
            for each in value:
                check(key, each)
        elif isinstance(value, str) and not _is_plain(key, value):
            raise refuse(key, value)

    check("", form)


def _is_flat(value: Any) -> bool:
    """Whether a value has texts only, and is no argument of a node by a misleading name."""
    if isinstance(value, dict):
        if any(name.startswith("as_") for name in value):
            return False
        value = list(value.values())
    return all(isinstance(each, str) for each in (value if isinstance(value, list) else [value]))


def _is_plain(key: str, text: str) -> bool:
    match key:
        case "expr_str":
            return _is_arithmetic(text)
        case "target" | "as_operator":
            return _is_operator(text)
        case "name" | "as_name" | "forward_arg_names":
            return _NAME.fullmatch(text) is not None
        case _:
            return _UNSAFE.search(text) is None


def _is_operator(text: str) -> bool:
    """Whether a node's target is an operator, and no other function that torch can reach."""
    if _OPERATOR.fullmatch(text):
        return True
    found = _REGISTERED.fullmatch(text)
    if found is None or not _FILE_OPERATORS.isdisjoint(text.split(".")):
        return False
    import torch  # noqa: PLC0415

    target: Any = torch.ops
    for part in text.split(".")[2:]:
        target = getattr(target, part, None)
    kinds = (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
    return target is None or isinstance(target, kinds)


def _is_arithmetic(text: str) -> bool:
    """Whether the text of a size is arithmetic: numbers, symbols and known functions of them."""
    if len(text) > _MOST_TEXT or re.search(r"[#\\\x00-\x1f]", text):
        return False
    try:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    names = {
        node.args[0]
        for node in nodes
        if isinstance(node, ast.Call) and node.args and getattr(node.func, "id", "") in _NAMED
    }
    return all(_is_term(node, node in names) for node in nodes)


def _is_term(node: ast.AST, is_name: bool) -> bool:
    """Whether a part of a size's text is harmless; `is_name` where it is a symbol's name."""
    match node:
        case ast.Call(func=ast.Name(id=function), args=arguments):
            is_power = function in _POWERS
            return function in _FUNCTIONS and (not is_power or _is_small(arguments[1:]))
        case ast.BinOp(op=ast.Pow(), right=exponent):
            return _is_small([exponent])
        case ast.Name(id=name):
            return not name.startswith("__")
        case ast.Constant(value=str(value)):  # sympy evaluates any other text
            return is_name and re.fullmatch(r"[\w.+-]*", value) is not None
        case ast.Constant(value=value):
            return isinstance(value, (int, float))
        case _:
            return isinstance(node, _ARITHMETIC)


def _is_small(exponents: list[ast.expr]) -> bool:
    """Whether a power can be computed at once."""
    return all(
        abs(node.value) <= _MOST_EXPONENT
        for exponent in exponents
        for node in ast.walk(exponent)
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float))
    )


def _is_plain_tree(text: str, *, names: bool) -> bool:
    """Whether the form of a program's arguments or results has neither classes nor source in it.

    Such a form is JSON, with more JSON in its texts. `names` are checked where source has them.
    """
    pending: list[Any] = [json.loads(text)]
    while pending:
        match pending.pop():
            case dict() as found:
                if "__enum__" in found or found.get("type") == "collections.defaultdict":
                    return False
                pending += [*found.keys(), *found.values()]
            case list() as found:
                pending += found
            case str() as found if found.startswith(("[", "{", '"')):
                pending.append(json.loads(found))
            case str() as found if names and _UNSAFE.search(found):
                return False
    return True
