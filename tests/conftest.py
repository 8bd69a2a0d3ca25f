"""Options and fixtures that all tests share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from boltgen.device.choose import activate
from boltgen.device.vgpu import Vgpu
from tests.kernels_report import KernelsReport
from tests.needs import ROOT
from tests.tiers import TIERS, has_module, has_test
from tests.virtual_gpu import all_checks, loaded_virtual_gpu, reset

_TESTS = Path(__file__).parent
_GOLDEN = _TESTS / "golden"
# Folders whose files share a fixture that takes minutes, and files whose tests are such files.
_OF_ONE_PROCESS = {"gpu_suite"}
_EACH_APART = {"test_relay_suite.py"}


def pytest_configure(config: pytest.Config) -> None:
    """Compile kernels to PTX alone, and verify graphs between passes; in child processes too.

    The virtual GPU runs nothing but PTX. `BOLTGEN_DEVICE_CODE=sass+ptx` runs the suite on what
    users deploy, in three times the time.
    """
    os.environ.setdefault("BOLTGEN_DEVICE_CODE", "ptx")
    os.environ.setdefault("BOLTGEN_VERIFY_GRAPHS", "1")
    if config.getoption("--kernels-report"):
        config.pluginmanager.register(KernelsReport())


@pytest.fixture(scope="module")
def machine_code() -> Iterator[None]:
    """Compile kernels for a GPU as well, as users do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOLTGEN_DEVICE_CODE", "sass+ptx")
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_measurements_of_the_user() -> Iterator[None]:
    """Kernels are chosen the same for whoever runs the tests; child processes included."""
    with tempfile.TemporaryDirectory(prefix="boltgen-data-") as folder:
        os.environ["BOLTGEN_DATA_DIR"] = folder
        yield
        del os.environ["BOLTGEN_DATA_DIR"]


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_by_other_files() -> None:
    """The virtual GPU in its first state, whichever file's tests this process ran before."""
    vgpu = loaded_virtual_gpu()
    if vgpu is not None:
        reset(vgpu)


@pytest.fixture
def checking() -> Iterator[Vgpu]:
    """The virtual GPU with every check on, nothing found or launched before."""
    vgpu = activate("vgpu").vgpu
    assert vgpu is not None
    vgpu.clear_launches()
    with all_checks(vgpu):
        yield vgpu


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier", choices=TIERS, default="all", help="run the tests of a tier; see tests/tiers.py"
    )
    parser.addoption(
        "--kernels-report", action="store_true", help="count the kernels that each area compiles"
    )
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the files in tests/golden anew instead of comparing with them",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what has no test of the tier, before it imports TVM or PyTorch."""
    tier = config.getoption("--tier")
    is_folder = collection_path.is_dir()
    if tier == "all" or not (is_folder or collection_path.match("test_*.py")):
        return None
    tests = collection_path.rglob("test_*.py") if is_folder else [collection_path]
    return not any(has_module(tier, path.relative_to(ROOT).as_posix()) for path in tests) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of other tiers."""
    tier = config.getoption("--tier")
    kept = [item for item in items if has_test(tier, item.nodeid)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where several processes run the tests, those of a file run in one, which has its fixtures.

    pytest-xdist's own groups are lost between it and pytest 9.2, which reads no `_nodeid`.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFixtures(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", maxsplit=1)[0]
            parts = Path(file).relative_to(_TESTS.name).parts
            if parts[0] in _EACH_APART:
                return nodeid
            return parts[0] if parts[0] in _OF_ONE_PROCESS else file

    return ByFixtures(config, log)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares `text` with the file `tests/golden/<name>`."""

    def check(name: str, text: str) -> None:
        path = _GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.write_text(text)
        assert path.exists(), f"{path} is missing: run pytest --update-golden and read it"
        assert text == path.read_text(), f"{name} changed: read the diff, then --update-golden"

    return check
