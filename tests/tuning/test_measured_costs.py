"""Where a decision's time comes from: this device, its architecture's, or the analytical model."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from boltgen import stored
from boltgen.arch import arch_named
from boltgen.build.library.kernels import toolchain_text
from boltgen.errors import NoLegalConfigError
from boltgen.ir.outcome import DeviceIdentity, DeviceKind
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.workload import Workload
from boltgen.settings import settings_from
from boltgen.stored import stored_costs
from boltgen.tuning.choice.measured_costs import MeasuredCosts
from boltgen.tuning.choice.select import Decision, ModelCosts, Task, select
from boltgen.tuning.database import schema
from boltgen.tuning.database.database import Database
from tests.build.fakes import fake_toolchain
from tests.tuning.samples import A100, CONFIG, GEMM, NO_LAUNCH, TOOLS, record

SM80 = arch_named("sm_80")
TASK = Task(workload=GEMM)
FAST = replace(CONFIG, stages=4)
OTHER = replace(A100, name="NVIDIA A100-PCIE-80GB", memory_bytes=80 << 30)
VIRTUAL = replace(A100, kind=DeviceKind.VGPU, name="vgpu A100")
MODEL = "predicted by the analytical model"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "records.sqlite") as database:
        yield database


def chosen(
    *databases: Database, device: DeviceIdentity | None = A100, tools: str = TOOLS
) -> Decision:
    costs = MeasuredCosts(databases, SM80, tools, device, ModelCosts(SM80))
    (decision,) = select([TASK], SM80, costs)
    return decision


def test_this_device_then_its_architecture_then_the_model(database: Database) -> None:
    assert chosen(database).origin == MODEL
    database.add([record(9.0, config=CONFIG, device=VIRTUAL)])
    found = chosen(database)
    assert found.origin == "modelled by the virtual GPU as vgpu A100, of the same sm_80"
    assert (found.config, found.time_us) == (CONFIG, 9.0)
    database.add([record(30.0, config=FAST, device=OTHER)])
    found = chosen(database)
    assert found.origin == "measured on NVIDIA A100-PCIE-80GB, of the same sm_80"
    assert (found.config, found.time_us) == (FAST, 30.0), "a modelled time does not compare"
    database.add([record(40.0), record(35.0, config=FAST)])
    found = chosen(database)
    assert found.origin == "measured on NVIDIA A100-SXM4-40GB, this device"
    assert (found.config, found.time_us) == (FAST, 35.0)
    assert chosen(database, device=VIRTUAL).time_us == 9.0
    assert chosen(database, device=None).origin.endswith("of the same sm_80")


def test_each_task_has_the_best_origin_that_it_can(database: Database) -> None:
    other = Task(workload=Workload.of(Gemm(m=64, n=64, k=64)))
    database.add([record(20.0)])
    costs = MeasuredCosts([database], SM80, TOOLS, A100, ModelCosts(SM80))
    origins = [decision.origin for decision in select([TASK, other], SM80, costs)]
    assert origins == ["measured on NVIDIA A100-SXM4-40GB, this device", MODEL]


def test_another_architecture_or_toolchain_is_never_taken(database: Database) -> None:
    database.add(
        [
            record(1.0, device=replace(A100, arch="sm_86")),
            record(1.0, toolchain=TOOLS.replace("CUTLASS 4.2.0", "CUTLASS 4.3.0")),
            record(1.0, toolchain=TOOLS.replace("nvcc 13.0.88", "nvcc 13.1.2")),
        ]
    )
    assert chosen(database).origin == MODEL


def test_failures_and_what_is_no_longer_legal_do_not_win(database: Database) -> None:
    illegal = replace(CONFIG, stages=9)
    database.add([record(1.0, config=illegal), record(NO_LAUNCH, config=FAST)])
    assert chosen(database).origin == MODEL
    database.add([record(20.0)])
    assert chosen(database).config == CONFIG


def test_what_failed_when_it_was_measured_is_left_out_of_the_models_costs(
    database: Database,
) -> None:
    liked = chosen(database).config
    database.add([record(NO_LAUNCH, config=liked, device=VIRTUAL)])
    found = chosen(database)
    assert (found.origin, found.config == liked) == (MODEL, False)
    costs = MeasuredCosts([database], SM80, TOOLS, A100, ModelCosts(SM80)).costs(GEMM)
    predicted = ModelCosts(SM80).costs(GEMM).by_config
    assert costs.by_config == {c: us for c, us in predicted.items() if c != liked}
    database.add(record(NO_LAUNCH, config=config) for config in predicted)
    with pytest.raises(NoLegalConfigError, match=r"all legal .*m=512.* sm_80 failed when they"):
        chosen(database)


def test_the_device_with_most_records_speaks_for_its_architecture(database: Database) -> None:
    database.add([record(5.0, device=OTHER)])
    database.add([record(50.0), record(40.0, config=FAST)])
    assert chosen(database, device=replace(A100, driver="1")).time_us == 40.0


def test_several_databases_are_asked(database: Database, tmp_path: Path) -> None:
    with Database(tmp_path / "shipped.sqlite") as shipped:
        shipped.add([record(20.0)])
        assert chosen(database, shipped).time_us == 20.0
        database.add([record(30.0, config=FAST, device=OTHER)])
        assert chosen(database, shipped).time_us == 20.0, "this device's, wherever they are"


def test_a_database_that_fails_is_done_without(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.add([record(20.0), record(30.0, device=OTHER)])
    costs = MeasuredCosts([database], SM80, TOOLS, A100, ModelCosts(SM80))
    database._connection.execute("DROP TABLE record")
    for _ in range(2):
        assert costs.costs(GEMM).origin == MODEL
    (warning,) = caplog.messages  # of two devices and two tasks
    assert warning.startswith("measurements are not used: database")
    assert "no such table" in warning


# What `boltgen compile` opens.


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """The user's database, with one record by the toolchain of these tests."""
    path = tmp_path / "data" / "records.sqlite"
    with Database(path) as database:
        database.add([record(20.0, toolchain=toolchain_text(fake_toolchain(tmp_path / "kit")))])
    return path


def opened(folder: Path) -> tuple[str, str]:
    """The origin of the task's costs, and the stamp of all of them."""
    settings = settings_from({"BOLTGEN_DATA_DIR": str(folder / "data"), "PATH": "/bin"})
    with stored_costs(SM80, fake_toolchain(folder / "kit"), settings) as costs:
        return costs.costs(GEMM).origin, costs.stamp


def test_the_users_database_is_read(user: Path, tmp_path: Path) -> None:
    origin, stamp = opened(tmp_path)
    assert origin == "measured on NVIDIA A100-SXM4-40GB, of the same sm_80"
    assert opened(tmp_path) == (origin, stamp)
    with Database(user) as database:
        database.add(
            [record(9.0, after_s=1, toolchain=toolchain_text(fake_toolchain(tmp_path / "kit")))]
        )
    assert opened(tmp_path)[1] != stamp, "a compiled model of before is not taken from the cache"


def test_no_database_is_made_by_choosing(tmp_path: Path) -> None:
    assert opened(tmp_path)[0] == MODEL
    assert not (tmp_path / "data").exists()


def test_shipped_records_are_read_and_not_written(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = tmp_path / "package" / "a100.sqlite"
    shipped.parent.mkdir()
    with Database(user) as database:
        database._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    user.rename(shipped)
    monkeypatch.setattr(stored, "shipped_records", lambda: (shipped,))
    monkeypatch.setattr(stored.os, "access", lambda path, mode: False)
    before = shipped.read_bytes()
    assert opened(tmp_path)[0] == "measured on NVIDIA A100-SXM4-40GB, of the same sm_80"
    assert shipped.read_bytes() == before


@pytest.mark.parametrize("fault", ["newer", "damaged", "foreign"])
def test_choosing_does_without_a_database_that_cannot_be_read(
    user: Path, tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection = sqlite3.connect(user)
    connection.execute(f"PRAGMA user_version = {schema.SCHEMA + 1}")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    said = "written by a newer boltgen"
    if fault == "damaged":
        user.write_bytes(b"\0" * 100 + user.read_bytes()[100:])
        said = "is no database; it is left as it is"
    if fault == "foreign":
        connection = sqlite3.connect(user)
        connection.execute("PRAGMA application_id = 77")
        connection.close()
        said = "another program's database; it is left as it is"
    with caplog.at_level(logging.WARNING):
        assert opened(tmp_path)[0] == MODEL
    assert said in caplog.text
