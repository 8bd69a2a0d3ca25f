"""Mutations of bytes and of JSON values, by a generator of random numbers that is passed in."""

from __future__ import annotations

import json
import random
from typing import Any

# What parsers stumble over: digits that are none, limits of types, depth, terminal commands.
TEXTS = (
    "",
    " ",
    "\u00b2",
    "9" * 30,
    "9" * 5000,
    "-1",
    "0",
    "1e999",
    "nan",
    "inf",
    "a" * 300,
    "x/" * 3000,
    "../../etc",
    "~nobody-of-that-name/x",
    "\x1b[31m\x07\u202e",
    "[red]%s{0}$(false)",
    "\ud800",
    "\u0661",
)
NUMBERS = (0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, 1e308, -0.0)


def mutated_bytes(content: bytes, rng: random.Random) -> bytes:
    """`content` with up to eight changes: flipped, cut, doubled, or strange parts."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 8)):
        place = rng.randrange(len(changed) + 1)
        match rng.randrange(5):
            case 0 if changed:
                changed[place % len(changed)] = rng.randrange(256)
            case 1:
                del changed[place : place + rng.randint(1, 64)]
            case 2:
                changed[place:place] = changed[place : place + rng.randint(1, 256)]
            case 3:
                changed[place:place] = rng.choice(TEXTS).encode("utf-8", "surrogatepass")
            case _ if rng.random() < 0.1:
                del changed[place:]
    return bytes(changed)


def mutated_json(text: str, rng: random.Random) -> bytes:
    """A JSON text with up to three values, keys or items replaced, removed or nested; or bytes."""
    if rng.random() < 0.3:
        return mutated_bytes(text.encode(), rng)
    value = json.loads(text)
    for _ in range(rng.randint(1, 3)):
        value = _changed(value, rng)
    return json.dumps(value).encode()


def _changed(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        others = {k: v for k, v in value.items() if k != key}
        match rng.randrange(6):
            case 0:
                return others
            case 1:
                return others | {rng.choice(TEXTS): value[key]}
            case _:
                return {**value, key: _changed(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        match rng.randrange(6):
            case 0:
                return value[:place] + value[place + 1 :]
            case 1:
                return value + value[place:]
            case _:
                return [*value[:place], _changed(value[place], rng), *value[place + 1 :]]
    return _strange(rng)


def _strange(rng: random.Random) -> Any:
    match rng.randrange(5):
        case 0:
            return rng.choice(TEXTS)
        case 1:
            return rng.choice(NUMBERS)
        case 2:
            return rng.choice([None, True, [], {}, [[]], {"type": "Gemm"}])
        case 3:
            nested: Any = 0
            for _ in range(rng.choice([10, 100, 500])):
                nested = [nested]
            return nested
        case _:
            return [{"type": "Binary", "op": "add", "lhs": i, "rhs": i} for i in range(60)]
