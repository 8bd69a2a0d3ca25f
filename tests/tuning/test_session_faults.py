"""What a session does of failures, interrupts, a full disk, a drifting clock, other sessions."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from boltgen.errors import DatabaseError, TuningError
from boltgen.families.trial import Trial
from boltgen.ir.outcome import Failure, Fault, Timing
from boltgen.tuning.database.database import Database
from boltgen.tuning.device.lock import device_lock
from boltgen.tuning.session.budget import Budget
from boltgen.tuning.session.options import SessionOptions
from tests.tuning.fakes import FakeBench, failing, formula_us
from tests.tuning.samples import timing
from tests.tuning.sessions import LOST, RELU, Heard, session


def test_a_failure_never_wins_and_is_not_tried_again(database: Database) -> None:
    wrong = Failure(fault=Fault.WRONG_RESULT, reason="2 of 64 elements differ")
    bench = FakeBench(failing(wrong, lambda trial: trial.config.stages == 4))
    report = session(bench, database).run()
    for result in report.results:
        assert result.best is not None
        assert result.best.config.stages != 4
    assert report.failed == sum(trial.config.stages == 4 for trial in bench.trials)
    assert {r.outcome for r in database.records() if isinstance(r.outcome, Failure)} == {wrong}
    assert session(FakeBench(), database).run().measured == 0


def test_where_everything_fails_there_is_no_best(database: Database) -> None:
    crash = Failure(fault=Fault.CRASH, reason="the worker was ended by SIGSEGV")
    report = session(FakeBench(lambda trial: crash), database, tasks=[RELU]).run()
    (result,) = report.results
    assert (result.best, report.model_us) == (None, None)
    assert result.failures
    assert set(result.failures) == {crash}


def test_a_lost_device_ends_the_session_with_what_was_measured(database: Database) -> None:
    left = iter(range(25))
    bench = FakeBench(lambda trial: formula_us(trial) if next(left, None) is not None else LOST)
    heard = Heard()
    report = session(bench, database, observer=heard).run()
    assert report.stopped == "the device was lost: the GPU has fallen off the bus"
    assert heard.warnings == [report.stopped]
    assert (report.measured, len(bench.trials)) == (25, 26)
    assert len(list(database.records())) == 25, "a lost device says nothing about a candidate"
    again = session(FakeBench(), database).run()
    assert again.reused == 25
    assert bench.trials[25] in {record.trial for record in database.records()}


def test_the_observer_hears_the_best_figure(database: Database) -> None:
    heard = Heard()
    report = session(FakeBench(), database, observer=heard).run()
    assert (heard.begun, heard.ended, len(heard.bests)) == (1, 1, report.measured)
    assert heard.bests[-1] == (pytest.approx(report.model_us), 3)
    assert heard.bests[0] == (pytest.approx(heard.bests[0][0]), heard.bests[0][1])
    assert heard.warnings == []


def test_an_interrupt_loses_nothing_measured(database: Database) -> None:
    left = iter(range(17))

    def interrupted(trial: Trial) -> float:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return formula_us(trial)

    heard = Heard()
    with pytest.raises(KeyboardInterrupt):
        session(FakeBench(interrupted), database, observer=heard).run()
    assert len(list(database.records())) == 17
    assert heard.ended == 1
    assert session(FakeBench(), database).run().reused == 17


def test_a_full_disk_ends_the_session_with_what_was_measured(database: Database) -> None:
    session(FakeBench(), database, Budget(trials=10)).run()
    pages = database._connection.execute("PRAGMA page_count").fetchone()[0]
    database._connection.execute(f"PRAGMA max_page_count = {pages}")
    bench = FakeBench()
    with pytest.raises(DatabaseError, match=r"no space left.*what was written before is kept"):
        session(bench, database).run()
    kept = {record.trial for record in database.records()}
    assert len(kept) == 10 + len(bench.trials) - 1, "all but the one that did not fit"
    database._connection.execute("PRAGMA max_page_count = 1000000")
    assert session(FakeBench(), database).run().reused == len(kept)


def test_steps_may_be_left_at_any_time(database: Database) -> None:
    bench = FakeBench()
    running = session(bench, database)
    for count, (trial, outcome) in enumerate(running.steps(), start=1):
        assert isinstance(outcome, Timing)
        assert trial in {record.trial for record in database.records()}
        if count == 5:
            break
    assert running.report().measured == 5


def test_a_killed_session_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    reading, writing = os.pipe()

    def telling(trial: Trial) -> float:
        # One byte when the next trial is asked for: then the last one is in the database.
        os.write(writing, b".")
        return formula_us(trial)

    def tune() -> None:
        with Database(path) as database:
            session(FakeBench(telling), database).run()

    process = multiprocessing.get_context("fork").Process(target=tune)
    process.start()
    told = 0
    while told < 30:
        told += len(os.read(reading, 1))
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with Database(path) as database:
        kept = {record.trial for record in database.records()}
        assert len(kept) >= 29
        bench = FakeBench()
        report = session(bench, database).run()
        assert report.reused == len(kept)
        assert not kept & set(bench.trials)


def test_a_drifting_clock_is_said(database: Database) -> None:
    count = 0

    def throttled(trial: Trial) -> Timing:
        nonlocal count
        count += 1
        return timing(formula_us(trial), clock_mhz=1410.0 if count <= 40 else 1095.0)

    heard = Heard()
    report = session(FakeBench(throttled), database, Budget(trials=50), observer=heard).run()
    assert report.drift is not None
    assert "10 of 50 measurements were not at 1410 MHz but between 1095 and 1410" in report.drift
    assert "nvidia-smi --lock-gpu-clocks" in report.drift
    assert len(heard.warnings) == 1, "said once, when it is seen"
    assert "1 of 41" in heard.warnings[0]


def test_a_steady_clock_is_not_spoken_of(database: Database) -> None:
    assert session(FakeBench(), database).run().drift is None
    unread = FakeBench(lambda trial: timing(formula_us(trial), clock_mhz=None), toolchain="other")
    assert session(unread, database).run().drift is None


def test_a_device_is_used_by_one_session_at_a_time(database: Database, tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    told: list[str] = []
    bench = FakeBench(lock_name="GPU-1234/abc")
    once = SessionOptions(wait=False)
    with device_lock("GPU-1234/abc", locks, wait=False, tell=told.append):
        with pytest.raises(TuningError, match=r"another session is measuring on GPU-1234/abc"):
            session(bench, database, lock_folder=locks, options=once).run()
        other = FakeBench(lock_name="GPU-5678")
        assert session(other, database, Budget(trials=3), lock_folder=locks).run().measured == 3
    assert bench.trials == []
    assert session(bench, database, lock_folder=locks, options=once).run().measured > 0
    assert told == []


def test_a_second_session_waits_for_the_first(database: Database, tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    reading, writing = os.pipe()
    done_reading, done_writing = os.pipe()

    def hold() -> None:
        with device_lock("GPU-1234", locks, wait=False, tell=print):
            os.write(writing, b"held")
            os.read(done_reading, 1)

    process = multiprocessing.get_context("fork").Process(target=hold)
    process.start()
    assert os.read(reading, 4) == b"held"

    class Releasing(Heard):
        def warn(self, message: str) -> None:
            super().warn(message)
            os.write(done_writing, b"!")

    heard = Releasing()
    bench = FakeBench(lock_name="GPU-1234")
    session(bench, database, Budget(trials=10), lock_folder=locks, observer=heard).run()
    process.join()
    assert heard.warnings == ["another session is measuring on GPU-1234; waiting for it to end"]
    assert len(bench.trials) == 10
