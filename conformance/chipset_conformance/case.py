"""What a case is, and the registry of generators that make them.

A generator is a function under ``@cases(level=N)`` in a module of ``chipset_conformance.levels``;
it yields cases derived from the interface table, so that a new function cannot stay untested::

    @cases(level=2)
    def gemm_cases() -> Iterator[Case]:
        for dtype in FLOATS:
            yield Case(
                id=f"gemm/{dtype.name.lower()}/transposed-a",
                functions=("gemm",),
                tags=frozenset({OPTIONAL}),
                dtype=dtype.name.lower(),
                run=partial(check_gemm, dtype=dtype, transposed=True),
            )
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chipset._interface import FUNCTIONS, RULES

if TYPE_CHECKING:
    from chipset_conformance.context import Context

Level = int | str
# In the order in which they run and are reached; the two named ones stand beside the ladder.
LEVELS: tuple[Level, ...] = (0, 1, 2, 3, 4, 5, "endures", "performs")
TITLES: dict[Level, str] = {
    0: "Boots",
    1: "Streams",
    2: "Computes",
    3: "Torch",
    4: "Learns",
    5: "Scales",
    "endures": "Endures",
    "performs": "Performs",
}


def levels_up_to(level: Level) -> list[Level]:
    """The level and every one of the ladder below it; a named one stands alone."""
    if isinstance(level, str):
        return [level]
    return [known for known in LEVELS if isinstance(known, int) and known <= level]


MANDATORY = "mandatory"  # an UNSUPPORTED answer is a failure unless the backend declares it
OPTIONAL = "optional"  # an UNSUPPORTED answer is counted and no more
NEEDS_TWO_DEVICES = "needs:devices=2"

GROUP_OF = {function.name: function.group for function in FUNCTIONS}
DEFAULT_TIMEOUT_S = 60.0


class CaseFailure(AssertionError):
    """The chip did something wrong.

    Args:
        message: what was expected, what came, for which input.
        reproducer: a script of about ten lines that shows it without the suite; if empty, the
            runner writes one from the case's calls.
    """

    def __init__(self, message: str, reproducer: str = "") -> None:
        super().__init__(message)
        self.reproducer = reproducer


class Unsupported(Exception):
    """The chip legally does not do what the case is about; the text says what."""


class NotRun(Exception):
    """The suite or the core cannot judge this yet, whatever the chip does; the text says why."""


@dataclass(frozen=True)
class Case:
    """One judgement over a chip.

    Attributes:
        id: stable, unique, made of parts that ``fnmatch`` can match: ``gemm/f16/transposed-a``.
        functions: of the interface table that it judges; the first gives its group.
        run: raises :class:`CaseFailure` or :class:`Unsupported`; an UNSUPPORTED status that
            escapes counts as Unsupported, any other exception as a failure.
        tags: MANDATORY or OPTIONAL, and ``needs:...``.
        rule: the id of the rule whose case this is (``MEM-001``), or None.
        dtype: for the matrix function x dtype, lower case (``"f16"``), or None.
        level: set by the generator's decorator.
        group: of the interface table, or a name of its own.
        timeout_s: after so many seconds it counts as hung and its process is killed.
    """

    id: str
    functions: tuple[str, ...]
    run: Callable[[Context], None]
    tags: frozenset[str] = frozenset({MANDATORY})
    rule: str | None = None
    dtype: str | None = None
    level: Level = 0
    group: str = ""
    timeout_s: float = DEFAULT_TIMEOUT_S

    def __post_init__(self) -> None:
        unknown = [name for name in self.functions if name not in GROUP_OF]
        if unknown:
            raise ValueError(f"case {self.id}: the interface table has no function {unknown[0]!r}")
        if self.rule is not None and self.rule not in RULES:
            raise ValueError(f"case {self.id}: the interface table has no rule {self.rule!r}")
        if not self.group:
            group = GROUP_OF[self.functions[0]] if self.functions else "model"
            object.__setattr__(self, "group", group)

    @property
    def mandatory(self) -> bool:
        return MANDATORY in self.tags


Generator = Callable[[], Iterator[Case]]
_generators: list[tuple[Level, Generator]] = []


def cases(level: Level) -> Callable[[Generator], Generator]:
    """Registers a generator of cases of a level."""
    if level not in LEVELS:
        raise ValueError(f"level {level!r} is none of {', '.join(map(str, LEVELS))}")

    def register(generator: Generator) -> Generator:
        _generators.append((level, generator))
        return generator

    return register


def load(wanted: Iterable[Level]) -> tuple[Case, ...]:
    """Every case of these levels, in the order of levels, then of module names.

    Only the modules of these levels are imported: levels from 3 on import torch.

    Raises:
        ValueError: two cases have one id.
    """
    from chipset_conformance import levels

    asked = sorted(set(wanted), key=LEVELS.index)
    for level in asked:
        for module in _modules(level):
            importlib.import_module(f"{levels.__name__}.{module}")
    found: dict[str, Case] = {}
    for level in asked:
        for case in _cases_of(level):
            if case.id in found:
                raise ValueError(f"two cases are named {case.id!r}")
            found[case.id] = case
    return tuple(found.values())


def has_cases(level: Level) -> bool:
    """Whether the suite has a module of cases for the level."""
    return bool(_modules(level))


def _modules(level: Level) -> list[str]:
    from chipset_conformance import levels

    prefix = f"l{level}_" if isinstance(level, int) else f"{level}_"
    names = sorted(module.name for module in pkgutil.iter_modules(levels.__path__))
    return [name for name in names if name.startswith(prefix)]


@functools.cache
def _cases_of(level: Level) -> tuple[Case, ...]:
    """What the imported generators of a level yield."""
    own = [generator for of, generator in _generators if of == level]
    return tuple(replace(case, level=level) for generator in own for case in generator())


def all_cases() -> tuple[Case, ...]:
    """Every case of every level."""
    return load(LEVELS)
