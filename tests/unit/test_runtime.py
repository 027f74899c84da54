"""Functions by name, rows of tasks, stripes, products of tiles."""

from __future__ import annotations

import pickle
import sys
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from threading import Barrier, BrokenBarrierError, get_ident
from typing import Any
from weakref import ref

import dask
import numpy as np
import pytest
from numba import njit

import bigembed as be
from bigembed.errors import InputError, JobError
from bigembed.jobs.extend import extend
from bigembed.jobs.growth.refresh import refresh
from bigembed.jobs.report.page import write_report
from bigembed.jobs.run import run_job
from bigembed.jobs.spec import parse_job, read_job
from bigembed.jobs.sweep.run import sweep, varied
from bigembed.rows import RowSource
from bigembed.rows.formats import ingest
from bigembed.runtime import arithmetic, blocks, executors, using
from bigembed.runtime.blocks import STRIPE, align_arrays, map_blocks, run_tasks, stripes
from bigembed.runtime.client_executor import ClientExecutor
from bigembed.runtime.executors import LocalPool, chosen_executor, run_on_idle_threads
from bigembed.runtime.parameters import allowed_functions as allowed
from bigembed.runtime.parameters import uncalled
from bigembed.store.matrix import CSRBlock
from bigembed.store.vector_space import MemorySpace
from tests.executors import executor, maps
from tests.unit.block_functions import manhattan

NAME = "tests.unit.block_functions:manhattan"
MODULE = "tests.unit.block_functions"
ROWS = np.random.default_rng(0).normal(size=(40, 3))
PROOF = "import pathlib\npathlib.Path(__file__).with_name('executed').touch()\ndef kernel(a, b):\n    return a @ b.T\n"


def job_file(folder: Path, method: str = "kernel_pca", **keys: str) -> Path:
    lines = "".join(f'{key} = "{value}"\n' for key, value in keys.items())
    text = f'[input]\npath = "rows.npy"\n[method]\nname = "{method}"\n{lines}[output]\npath = "run.zarr"\n'
    (folder / "job.toml").write_text(text + 'model = "model.zarr"\n')
    return folder / "job.toml"


class TestFunctions:
    """Functions that a file names are called only if the reader allows them."""

    @pytest.fixture
    def stranger(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A folder with a module that leaves a file if it is imported; it is the working folder, and on the path."""
        folder = tmp_path / "given"
        folder.mkdir()
        (folder / "stranger_kernel.py").write_text(PROOF)
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(str(folder))
        np.save(folder / "rows.npy", ROWS)
        yield folder
        sys.modules.pop("stranger_kernel", None)

    @pytest.mark.parametrize(
        ("method", "key"), [("kernel_pca", "kernel"), ("landmark_mds", "metric"), ("classical_mds", "metric"),
                            ("landmark_diffusion_map", "kernel")]
    )  # fmt: skip
    @pytest.mark.parametrize("name", ["stranger_kernel:kernel", "cProfile:run", "os:system"])
    def test_a_job_file_executes_nothing(self, stranger: Path, method: str, key: str, name: str) -> None:
        file = job_file(stranger, method, **{key: name})
        with pytest.raises(JobError, match=rf"{key}: '{name}' names a function.*--allow-functions"):
            read_job(file)
        with pytest.raises(JobError, match="--allow-functions"):
            read_job(file, ["somebody", "cProfiler", "stranger_kernel.below", "o"])
        assert not (stranger / "executed").exists()

    def test_a_sweep_executes_nothing_that_was_not_allowed(self, stranger: Path) -> None:
        job = varied(read_job(job_file(stranger, kernel="rbf")), ["kernel=rbf,stranger_kernel:kernel"])
        with pytest.raises(JobError, match="--allow-functions"):
            sweep(job)
        assert not (stranger / "executed").exists()

    def test_a_saved_model_executes_nothing(self, stranger: Path) -> None:
        be.KernelPCA(2, kernel="stranger_kernel:kernel").fit(ROWS).save("model.zarr")
        (stranger / "executed").unlink()
        del sys.modules["stranger_kernel"]
        for refused in (lambda: be.load("model.zarr"), lambda: extend("model.zarr", "rows.npy", "out.zarr")):
            with pytest.raises(InputError, match=r"'stranger_kernel:kernel' names .*functions=.*--allow-functions"):
                refused()
        with pytest.raises(InputError, match="names a function"):
            be.load("model.zarr", functions={"another:kernel": manhattan})
        assert not (stranger / "executed").exists()
        given = be.load("model.zarr", functions={"stranger_kernel:kernel": lambda a, b: a @ b.T})
        assert not (stranger / "executed").exists()
        trusted = be.load("model.zarr", functions=["stranger_kernel"])
        assert np.array_equal(trusted.transform(ROWS), given.transform(ROWS))
        extend("model.zarr", "rows.npy", "out.zarr", functions=["stranger_kernel:kernel"])
        assert (stranger / "executed").exists()

    def test_a_report_of_a_run_executes_nothing(self, stranger: Path) -> None:
        run_job(read_job(job_file(stranger, kernel="stranger_kernel:kernel"), ["stranger_kernel"]))
        (stranger / "executed").unlink()
        del sys.modules["stranger_kernel"]
        write_report("run.zarr", "page.html")
        assert "stranger_kernel:kernel" in Path("page.html").read_text()
        assert not (stranger / "executed").exists()

    def test_a_growing_embedding_calls_what_its_job_allows(self, stranger: Path) -> None:
        ingest("rows.npy", "rows.zarr")
        tables = {
            "input": {"path": "rows.zarr"},
            "method": {"name": "kernel_pca", "kernel": "stranger_kernel:kernel", "n_components": 2},
            "output": {"path": "growing.zarr"},
        }
        with pytest.raises(JobError, match="--allow-functions"):
            parse_job(tables, stranger / "job.toml")
        job = parse_job(tables, stranger / "job.toml", ["stranger_kernel"])
        assert refresh(job)["fitted"] == len(ROWS)

    def test_of_a_trusted_module_only_what_is_defined_in_it(self) -> None:
        taken, problems = allowed({"metric": NAME, "k": 3}, [MODULE], "")
        assert (taken, problems) == ({"metric": NAME, "k": 3}, [])
        assert allowed({"metric": NAME}, MODULE, "") == ({"metric": NAME}, [])
        assert allowed({"metric": NAME}, ["tests.unit"], "")[1] == []
        assert allowed({"metric": NAME}, {NAME: manhattan}, "") == ({"metric": manhattan}, [])
        (problem,) = allowed({"metric": "subprocess:os.system"}, ["subprocess"], "")[1]
        assert "not defined there but in posix" in problem
        assert allowed({"metric": "numpy:dot"}, ["numpy:dot"], "")[1] == []
        assert not allowed({"metric": "euclidean"}, (), "")[1]

    def test_a_sealed_name_is_not_called(self) -> None:
        with pytest.raises(InputError, match="not executed"):
            uncalled({"kernel": NAME})["kernel"](ROWS, ROWS)
        assert uncalled({"kernel": "rbf"}) == {"kernel": "rbf"}

    def test_the_command_line_names_the_option_and_takes_it(self, stranger: Path) -> None:
        from typer.testing import CliRunner

        from bigembed.cli import app

        file = str(job_file(stranger, kernel="stranger_kernel:kernel"))
        for command in (["plan", file], ["run", file]):
            found = CliRunner().invoke(app, command)
            assert found.exit_code == 2
            assert "--allow-functions" in found.output
        assert not (stranger / "executed").exists()
        assert CliRunner().invoke(app, ["run", file, "--allow-functions", "stranger_kernel"]).exit_code == 0
        extend_it = ["extend", "model.zarr", "rows.npy", "out.zarr"]
        assert CliRunner().invoke(app, extend_it).exit_code == 2
        assert CliRunner().invoke(app, [*extend_it, "--allow-functions", "stranger_kernel:kernel"]).exit_code == 0


NUMBERS = np.arange(12.0).reshape(3, 4)


def unsettled(array: np.ndarray) -> np.ndarray:
    """The same numbers at an odd address."""
    held = np.empty(array.nbytes + 1, np.uint8)[1:]
    held[...] = np.frombuffer(array.tobytes(), np.uint8)
    return held.view(array.dtype).reshape(array.shape)


def carried(value: Any) -> Any:
    """As a message may bring it."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[unsettled(np.frombuffer(buffer.raw(), np.uint8)) for buffer in buffers])


def arrays_in(value: Any) -> list[np.ndarray]:
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, CSRBlock):
        value = list(vars(value).values())
    return [array for part in value for array in arrays_in(part)] if isinstance(value, list | tuple) else []


def look(number: int, *, given: Any) -> Any:
    """What the task sees of its arguments; and a result that needs as much care."""
    found = arrays_in(given)
    return [(array.flags.aligned, array.flags.c_contiguous) for array in found], {"out": np.asfortranarray(NUMBERS)}


class TestRows:
    """Arrays are aligned and in C order where a task gets them and where its results arrive, whatever carried them."""

    def test_map_blocks_settles_arguments_and_results(self) -> None:
        block = CSRBlock(*(NUMBERS[:, ::-1] for _ in range(6)))
        given = {"plain": NUMBERS, "turned": [NUMBERS.T, (NUMBERS[:, ::2],)], "object": block}

        def messages(calls: Any, label: str) -> list[Any]:
            return [carried(carried(call)()) for call in calls]

        with executor(messages):
            [(seen, result)] = map_blocks(look, [(0,)], given=given)
        assert len(seen) == 9
        assert all(aligned and ordered for aligned, ordered in seen)
        assert result["out"].flags.aligned
        assert result["out"].flags.c_contiguous
        np.testing.assert_array_equal(result["out"], NUMBERS)
        assert not block.data.flags.c_contiguous  # the caller's is left as it is

    def test_settled_leaves_what_is_in_order(self) -> None:
        assert align_arrays(NUMBERS) is NUMBERS
        block = CSRBlock(*(NUMBERS for _ in range(6)))
        assert align_arrays(block) is block
        assert align_arrays(np.array(2.0)).shape == ()
        call = align_arrays(partial(np.add, NUMBERS.T, out=None))
        assert call.args[0].flags.c_contiguous
        assert call.keywords == {"out": None}

    def test_the_rows_of_all_blocks_are_looked_at_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = []
        monkeypatch.setattr(blocks, "align_arrays", lambda value: seen.append(value) or align_arrays(value))
        rows = tuple(range(1_000))
        assert align_arrays(rows) is rows
        assert seen == []  # (every task gets them: one by one, a map would look at the square of the blocks)
        assert align_arrays((*rows, NUMBERS.T))[-1].flags.c_contiguous
        assert len(seen) > 1_000

    def test_what_calls_have_in_common_is_looked_into_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        looked, given = [], {"turned": NUMBERS.T}
        monkeypatch.setattr(blocks, "align_arrays", lambda value: looked.append(value is given) or align_arrays(value))
        with executor(lambda calls, label: [call() for call in calls]):
            results = map_blocks(look, [(number,) for number in range(5)], given=given)
        assert all(seen == [(True, True)] for seen, _ in results)
        assert sum(looked) == 1
        assert not given["turned"].flags.c_contiguous  # the caller's is left as it is

    def test_rows_of_the_user_are_settled_part_by_part(self) -> None:
        source = RowSource((4, 3), np.dtype(float), array=NUMBERS.T)
        assert align_arrays(source) is source
        assert source.matrix(0, 4).flags.c_contiguous
        odd = RowSource((3, 4), np.dtype(float), array=unsettled(NUMBERS))
        assert not odd.read(0, 3).flags.aligned
        assert odd.matrix(0, 3).flags.aligned


def thread_block(block: int) -> tuple[tuple[()], list[Any]]:
    return (), run_on_idle_threads([partial(np.add, block, k) for k in range(3)])


def _raise(error: Exception) -> None:
    raise error


class TestStripes:
    """Stripes of a block on threads that are idle: their results in order, whoever took them."""

    def test_stripes_cover_the_rows(self) -> None:
        assert stripes(0) == [(0, 0)]
        assert stripes(2 * STRIPE + 5) == [(0, STRIPE), (STRIPE, 2 * STRIPE), (2 * STRIPE, 2 * STRIPE + 5)]

    def test_an_idle_thread_helps_and_a_busy_one_does_not(self) -> None:
        meeting, alone = Barrier(2, timeout=20), Barrier(2, timeout=0.2)

        def meet(place: int) -> tuple[int, int]:
            meeting.wait()  # (needs two threads)
            return place, get_ident()

        def task(place: int) -> bool:
            meeting.wait()  # (both threads have tasks)
            met = True
            if place:
                with suppress(BrokenBarrierError):
                    run_on_idle_threads([alone.wait, alone.wait])
                met = not alone.broken
            meeting.wait()
            return met

        with LocalPool(2) as pool, using(executor=pool):
            found = run_on_idle_threads([partial(meet, place) for place in range(4)])
            assert pool.run([partial(task, place) for place in range(2)], "") == [True, False]
        assert [place for place, _ in found] == [0, 1, 2, 3]
        assert len({thread for _, thread in found}) == 2

    @pytest.mark.parametrize("processors", [1, 2])
    def test_where_tasks_run_elsewhere_this_process_has_threads_for_what_it_does_itself(
        self, processors: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("dask.system.CPU_COUNT", processors)
        executors._own_threads.cache_clear()
        meeting = Barrier(2, timeout=20 if processors > 1 else 0.2)
        ends = nullcontext() if processors > 1 else pytest.raises(BrokenBarrierError)
        with using(executor=ClientExecutor(None, 1.0, monitor=object())), ends:
            assert sorted(run_on_idle_threads([meeting.wait, meeting.wait])) == [0, 1]
        if (threads := executors._own_threads()) is not None:
            threads.close()
        executors._own_threads.cache_clear()

    def test_whoever_waits_for_a_task_helps_with_its_stripes_whichever_thread_has_it(self) -> None:
        meeting, begun = Barrier(2, timeout=20), Barrier(2, timeout=20)

        def task(place: int) -> int:
            begun.wait()
            if place:
                run_on_idle_threads(
                    [meeting.wait, meeting.wait]
                )  # (as soon as the other thread is done with its own task)
            return place

        with LocalPool(2) as pool, using(executor=pool):
            for _ in range(20):
                assert pool.run([partial(task, place) for place in range(2)], "") == [0, 1]
                assert pool.run([partial(task, 1 - place) for place in range(2)], "") == [1, 0]

    def test_stripes_that_are_done_are_not_kept_in_memory_while_all_threads_are_busy(self) -> None:
        both = Barrier(2, timeout=20)

        def task(place: int) -> list[bool]:
            both.wait()
            left = [ref(done) for done in run_on_idle_threads([partial(np.zeros, 3)] * 2)] if place else []
            dead = [array() is None for array in left]
            both.wait()
            return dead

        with LocalPool(2) as pool, using(executor=pool):
            assert pool.run([partial(task, 0), partial(task, 1)], "") == [[], [True, True]]

    @pytest.mark.parametrize("threads", [1, 2, 5])
    def test_an_error_in_any_thread_is_raised_and_the_pool_goes_on(self, threads: int) -> None:
        begun: list[int] = []

        def fail(place: int) -> None:
            begun.append(place)
            raise ValueError(str(place))

        def task(place: int) -> None:
            run_on_idle_threads([partial(fail, place) for place in range(100)])

        def heard(label: str, done: int, total: int) -> None:
            if done:
                raise KeyError(done)

        with LocalPool(threads) as pool, using(executor=pool):
            for call in (fail, task):
                begun.clear()
                with pytest.raises(ValueError, match=r"\d"):
                    pool.run([partial(call, place) for place in range(100)], "")
                assert len(begun) < 2 * threads
            with pytest.raises(KeyError, match="1"):
                pool.run([partial(abs, place) for place in range(-100, 0)], "", heard)
            assert pool.run([partial(abs, -place) for place in range(100)], "") == list(range(100))

    @pytest.mark.parametrize("sizes", [(4,), (4, 2, 1)])
    def test_sweeps_in_memory_spread_on_any_scheduler(self, sizes: tuple[int, ...]) -> None:
        for scheduler in ("synchronous", "threads"):
            with dask.config.set(scheduler=scheduler, num_workers=3):
                with chosen_executor() as chosen:
                    assert (chosen.pool.count if chosen.pool else 1) == (3 if scheduler == "threads" else 1)
                found = MemorySpace(sizes=sizes).sweep(thread_block)
            assert found == [[block, block + 1, block + 2] for block in range(len(sizes))]
        with executor(maps()[0]), chosen_executor() as chosen:
            assert (chosen.pool.count if chosen.pool else 1) == 1

    def test_maps_go_to_a_pool_where_dask_would_run_them_in_threads(self) -> None:
        def thread() -> int:
            return get_ident()

        with dask.config.set(num_workers=3):
            with chosen_executor() as chosen:
                assert chosen.pool.count == 3
                assert get_ident() not in run_tasks([thread] * 9, "thread")
                with chosen_executor() as same, using(executor=LocalPool(2)), chosen_executor() as other:
                    assert same is chosen
                    assert other is not chosen
                with executor(maps()[0]), chosen_executor():
                    assert run_tasks([thread] * 9, "thread") == [get_ident()] * 9
            with dask.config.set(scheduler="synchronous"), chosen_executor():
                assert run_tasks([thread] * 9, "thread") == [get_ident()] * 9
            assert get_ident() not in run_tasks([thread] * 9, "thread")

    def test_an_interrupt_in_compiled_code_is_that_interrupt(self) -> None:
        def call(place: int) -> None:
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt as error:
                raise SystemError("returned a result with an exception set") from error

        with LocalPool(2) as pool, using(executor=pool), pytest.raises(KeyboardInterrupt):
            pool.run([partial(call, place) for place in range(2)], "")
        with LocalPool(2) as pool, using(executor=pool), pytest.raises(SystemError, match="alone"):
            pool.run([partial(_raise, SystemError("alone")) for _ in range(2)], "")


@njit
def add_product(out, out_at, a, a_at, a_row, a_step, rows, count, b, b_at, width):  # type: ignore[no-untyped-def]
    arithmetic.add_product(out, out_at, a, a_at, a_row, a_step, rows, count, b, b_at, width)


@njit
def add_rows(out, at, a, begin, rows, b):  # type: ignore[no-untyped-def]
    arithmetic.add_rows(out, at, a, begin, rows, b)


@njit
def add_inner(out, at, a, begin, rows, b, b_begin):  # type: ignore[no-untyped-def]
    arithmetic.add_inner(out, at, a, begin, rows, b, b_begin)


@njit
def move(out, at, first, x, begin, rows, columns):  # type: ignore[no-untyped-def]
    arithmetic.move(out, at, first, x, begin, rows, columns)


@njit
def weighted_rows(out, at, weight, start, stop, index, shift, x, far, column):  # type: ignore[no-untyped-def]
    arithmetic.weighted_rows(out, at, weight, start, stop, index, shift, x, far, column)


class TestTileProduct:
    """Products in registers, sums of picked rows, and columns moved between precisions, beside NumPy's."""

    @pytest.mark.parametrize("width", [8, 16, 24])
    @pytest.mark.parametrize("rows", [1, 3, 4, 9])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_products_are_those_of_numpy_in_both_directions(self, width: int, rows: int, dtype: type) -> None:
        rng = np.random.default_rng(0)
        a, b = rng.standard_normal((rows + 2, 5)).astype(dtype), rng.standard_normal((7, width))
        out = rng.standard_normal((rows + 1, width))
        expected = out.copy()
        expected[1:] += a[2:].astype(np.float64) @ b[1:6]
        whole = out.copy()
        add_product(out, width, a, 10, 5, 1, rows, 5, b, width, width)
        np.testing.assert_allclose(out, expected, atol=1e-14)
        add_rows(whole, 1, a, 2, rows, b[1:6])
        assert whole.tobytes() == out.tobytes()
        inner, tall = np.zeros((5, width)), rng.standard_normal((rows, width))
        add_product(inner, 0, a, 10, 1, 5, 5, rows, tall, 0, width)
        np.testing.assert_allclose(inner, a[2:].astype(np.float64).T @ tall, atol=1e-14)
        taller = np.zeros((7, width))
        add_inner(taller, 2, a, 2, rows, np.concatenate([b, tall]), 7)
        assert taller[2:].tobytes() == inner.tobytes()
        assert not taller[:2].any()

    @pytest.mark.parametrize("columns", [1, 7, 8, 9, 15, 17])
    @pytest.mark.parametrize(
        ("source", "target"), [(np.float64, np.float32), (np.float32, np.float64), (np.float64,) * 2]
    )
    def test_move_takes_these_columns_and_no_others(self, columns: int, source: type, target: type) -> None:
        x, out = np.random.default_rng(0).random((3, 40)).astype(source), np.full((3, 30), -1, target)
        move(out, 1, 2, x, 1, 2, columns)
        np.testing.assert_array_equal(out[1:, 2 : 2 + columns], x[1:, :columns].astype(target))
        out[1:, 2 : 2 + columns] = -1
        assert (out == -1).all()

    @pytest.mark.parametrize("columns", [3, 8, 15, 21])
    @pytest.mark.parametrize("column", [0, 2])
    @pytest.mark.parametrize("kind", [np.float32, np.float64])
    def test_picked_rows_are_summed_in_their_order(self, columns: int, column: int, kind: type) -> None:
        rng = np.random.default_rng(2)
        x, far = rng.standard_normal((7, columns)).astype(kind), rng.standard_normal((4, columns)).astype(kind)
        weight, index = rng.standard_normal(30), rng.integers(0, 11, 33).astype(np.int32)
        index[5] = 10
        out, expected, whole = np.full((3, columns), 9.0), np.zeros(columns), np.concatenate([x, far]).astype(float)
        for e in range(1, 29):
            expected += weight[e] * whole[index[e + 3]]
        weighted_rows(out, 1, weight, 1, 29, index, 3, x, far, column)
        np.testing.assert_array_equal(out[1, column:], expected[column:])
        assert (out[[0, 2]] == 9).all()
        weighted_rows(out, 0, weight.astype(kind), 4, 4, index.astype(np.int64), 3, x, far, 0)
        assert not out[0].any()
