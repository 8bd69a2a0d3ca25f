"""Rules that ask themselves about other values of a graph, without Python's own recursion.

A model may be thousands of operators deep, and may read one value twice at each step: a rule that
calls itself would overflow the stack of the interpreter, or take exponentially long.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from typing import TypeAlias, TypeVar, cast

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")
# A rule yields the key that it asks about, is sent the answer to that, and returns its own.
Steps: TypeAlias = Generator[Key, Answer, Answer]


def answer(
    rule: Callable[[Key], Steps[Key, Answer]],
    key: Key,
    known: dict[Key, Answer] | None = None,
) -> Answer:
    """Return what `rule` says of `key`. It is asked once about each key; `known` has all answers.

    The keys must form no circle.
    """
    answers: dict[Key, Answer] = {} if known is None else known
    if key in answers:
        return answers[key]
    asked = [(key, rule(key))]
    sent: Answer | None = None
    while asked:
        current, steps = asked[-1]
        try:
            # A rule that begins is sent None.
            wanted = steps.send(cast("Answer", sent))
        except StopIteration as done:
            asked.pop()
            answers[current] = sent = done.value
            continue
        if wanted in answers:
            sent = answers[wanted]
        else:
            asked.append((wanted, rule(wanted)))
            sent = None
    return answers[key]
