"""Makes the suite run under pytest: ``pytest --pyargs chipset_conformance --chip NAME``.

Installed packages bring it as a plugin of pytest; a source checkout names it with
``-p chipset_conformance.pytest_plugin``. Nothing but the options is loaded until cases are asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from chipset_conformance.case import Case
    from chipset_conformance.runner import Settings
    from chipset_conformance.worker import Worker


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("chipset", "conformance of a chip")
    group.addoption("--chip", metavar="NAME[:INDEX]", help="the device to judge")
    group.addoption("--chip-level", default=None, help="as certify's --level")
    group.addoption("--chip-only", default=None, help="a group, a function, a glob over case ids")
    group.addoption("--chip-seed", type=int, default=0, help="of everything random")
    group.addoption("--chip-declarations", type=Path, default=None, help="conformance.toml to use")


def settings_of(config: pytest.Config) -> Settings:
    from chipset_conformance.command import level_of
    from chipset_conformance.runner import Settings

    device = config.getoption("--chip")
    if not device:
        raise pytest.UsageError("say which device to judge: --chip NAME")
    return Settings(
        device=device,
        level=level_of(config.getoption("--chip-level")),
        only=config.getoption("--chip-only"),
        seed=config.getoption("--chip-seed"),
        declared=config.getoption("--chip-declarations"),
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"chip_case", "chip_judge"} <= set(metafunc.fixturenames):
        from chipset_conformance.case import load
        from chipset_conformance.runner import select

        settings = settings_of(metafunc.config)
        chosen = select(load(settings.levels), settings.only)
        metafunc.parametrize("chip_case", chosen, ids=[case.id for case in chosen])


class Judge:
    """Keeps a worker for the cases; replaces it when a case has spent it."""

    def __init__(self, settings: Settings) -> None:
        from chipset_conformance import declarations
        from chipset_conformance.runner import declarations_of

        self.settings = settings
        path = declarations_of(settings)
        self.declared = declarations.read(path) if path else []
        self.worker: Worker | None = None

    def __call__(self, case: Case) -> None:
        """Runs the case; fails or skips the test as its record says."""
        from chipset_conformance import declarations
        from chipset_conformance.results import Outcome
        from chipset_conformance.worker import Worker

        if self.worker is None:
            self.worker = Worker(self.settings.device, self.settings.seed, self.settings.levels)
        record, usable = self.worker.run(case)
        if not usable:
            self.close()
        record = declarations.apply(record, self.declared, self.settings.today)
        # What was not run is not passed: certify would not reach the level, either.
        if record.bars_the_level:
            pytest.fail(
                f"{record.outcome.value}: {record.message}\n\n{record.reproducer}", pytrace=False
            )
        if record.outcome != Outcome.PASSED:
            pytest.skip("; ".join([record.outcome.value, record.message, *record.notes]))

    def close(self) -> None:
        if self.worker is not None:
            self.worker.kill()
            self.worker.close()
            self.worker = None


@pytest.fixture(scope="session")
def chip_judge(pytestconfig: pytest.Config) -> Iterator[Judge]:
    """Runs cases on the device in a process of its own."""
    made = Judge(settings_of(pytestconfig))
    yield made
    made.close()
