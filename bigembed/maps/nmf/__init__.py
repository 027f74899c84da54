"""Nonnegative matrix factorization of rows.

Its stages are here: sums, start, and an alternating descent that is resumed where it stopped.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg

from bigembed.errors import InputError
from bigembed.linalg.nonnegative import nonnegative_rows
from bigembed.maps.descent import RowDescent
from bigembed.rows import RowBlock, RowSource, opening, row_maps
from bigembed.rows.passes import Parts, reduce_rows
from bigembed.runtime.blocks import Array, is_sparse
from bigembed.stages import Arrays, ArraySpec, Context, Cost, Stage, summing_cost
from bigembed.store.arrays import read_array, write_array
from bigembed.store.exchange import Exchange

# ----------------------------------------------------------------------------------------------------------- start
# Where a nonnegative factorization starts: H from the singular vectors of X (NNDSVD), at random, or given.
#
# NNDSVD (Boutsidis & Gallopoulos 2008): of the pair u, v to the singular value σ either the positive or the negative
# parts are kept, those with the larger product of norms ‖u±‖‖v±‖ = μ; then H_l = √(σ μ) v±/‖v±‖. The weights of rows
# need no start: they are solved for.

RULES = ("nndsvd", "nndsvda", "nndsvdar", "random")
GRAM_COLUMNS = 4096
"""Columns up to which XᵀX is formed for the singular vectors."""


def total_block(block: RowBlock, gram: bool) -> Parts:
    """Σ m x, Σ m ‖x‖², the smallest entry and, with ``gram``, Σ m x xᵀ of one block."""
    rows, mass = block.rows, block.weights
    data = rows.data if is_sparse(rows) else rows
    lowest = float(data.min(initial=0.0)) if data.size else 0.0
    found: Parts = {
        "lowest": np.array(lowest),
        "weight": np.array(rows.shape[0] if mass is None else mass.sum(), float),
    }
    m = np.ones(rows.shape[0]) if mass is None else mass
    found["sum"] = np.asarray(rows.T @ m, np.float64)
    squares, second = 0.0, np.zeros((rows.shape[1],) * 2 if gram else (0, 0))
    for start in range(0, rows.shape[0], 1024):
        part = rows[start : start + 1024].astype(np.float64)
        weight = np.sqrt(m[start : start + 1024])
        part = part.multiply(weight[:, None]).tocsr() if is_sparse(part) else part * weight[:, None]
        squares += float((part.data**2).sum() if is_sparse(part) else np.vdot(part, part))
        if gram:
            product = part.T @ part
            second += product.toarray() if is_sparse(product) else product
    return found | {"squares": np.array(squares), "gram": second}


def combine_totals(left: Parts, right: Parts) -> Parts:
    """Sums, and the smaller of the smallest entries."""
    return {
        name: np.minimum(value, right[name]) if name == "lowest" else value + right[name]
        for name, value in left.items()
    }


def parts_block(block: RowBlock, vectors: Array) -> Parts:
    """Σ m max(u, 0)² and Σ m min(u, 0)² for u = X v, (2, m)."""
    u = row_maps.affine_block(block.rows, np.zeros(len(vectors)), vectors)
    m = np.ones(len(u)) if block.weights is None else block.weights
    return {"masses": np.stack([m @ np.maximum(u, 0.0) ** 2, m @ np.minimum(u, 0.0) ** 2])}


def singular_vectors(gram: Array, m: int) -> tuple[Array, Array]:
    """The m leading right singular vectors (d, m) of X from XᵀX, and σ."""
    values, vectors = linalg.eigh(gram)
    leading = vectors[:, ::-1][:, :m]
    return np.ascontiguousarray(leading), np.sqrt(np.maximum(values[::-1][:m], 0.0))


def nndsvd(vectors: Array, sigma: Array, masses: Array) -> Array:
    """H (m, d) ≥ 0 from V (d, m), σ and the squared norms of the parts of X v (``masses``, (2, m))."""
    positive, negative = np.maximum(vectors, 0.0), np.maximum(-vectors, 0.0)
    long_positive, long_negative = np.linalg.norm(positive, axis=0), np.linalg.norm(negative, axis=0)
    safe = np.where(sigma > 0, sigma, 1.0)
    products = np.stack([np.sqrt(masses[0]) / safe * long_positive, np.sqrt(masses[1]) / safe * long_negative])
    up = products[0] >= products[1]
    chosen, long = np.where(up, positive, negative), np.where(up, long_positive, long_negative)
    return np.asarray((chosen * np.sqrt(sigma * products.max(axis=0)) / np.where(long > 0, long, 1.0)).T)


def filled(components: Array, rule: str, mean: float, seed: int) -> Array:
    """Zeros as they are (nndsvd), the mean of X (nndsvda), or small random numbers up to 1 % of it (nndsvdar)."""
    if rule == "nndsvd":
        return components
    if rule == "nndsvda":
        fresh: Any = mean
    else:
        fresh = np.abs(mean * np.random.default_rng(seed).standard_normal(components.shape) / 100)
    return np.where(components < 1e-12 * components.max(initial=0.0), fresh, components)


def random_start(m: int, d: int, mean: float, seed: int) -> Array:
    """√(mean/m) |N(0, 1)|, (m, d)."""
    return np.asarray(np.sqrt(mean / m) * np.abs(np.random.default_rng(seed).standard_normal((m, d))))


def given_start(start: Any, m: int, d: int) -> Array:
    """The user's H, checked."""
    start = opening.unmasked(start, what="init: starting components")
    try:
        given = np.asarray(start, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"init={start!r}; allowed: a name, or an array of numbers (n_components, d)") from error
    if given.shape != (m, d) or not np.isfinite(given).all() or (given < 0).any() or not given.any(axis=1).all():
        raise InputError(
            f"init: an array of starting components must be finite, nonnegative, of shape {(m, d)} and without empty "
            f"rows; got shape {given.shape}"
        )
    return given


# --------------------------------------------------------------------------------------------------------- descent
# The stages of NMF: sums, start, and an alternating descent that is resumable after every pass.

PLANNED = 50
"""Iterations that a plan counts on."""
INNER = 200
"""Sweeps over H after a pass: they cost no pass."""


REVIVALS = 20
"""Iterations, at most, after which components that no row has any of are made anew."""
NOTHING = 1e-14
"""Share of ‖X‖² that counts as no error."""


def weight_rows(rows: Any, model: str) -> Array:
    """w ≥ 0 of least ‖x − w H‖ for each row, H stored at ``model``."""
    data = rows.data if is_sparse(rows) else rows
    if data.size and data.min() < 0:
        raise InputError("Negative values in data passed to NMF: entries of rows must be ≥ 0")
    components = read_array(model)
    return nonnegative_rows(_products(rows, components), components @ components.T)


def _products(rows: Any, components: Array) -> Array:
    return row_maps.affine_block(rows, np.zeros(components.shape[1]), np.ascontiguousarray(components.T))


def factor_block(
    block: RowBlock, components: Array, sweeps: int, store: Exchange, read: str, write: str, revived: Array
) -> Parts:
    """Improve the rows of W for H; WᵀX and WᵀW. Weights of ``revived`` components start anew."""
    start = store.get(read, block.number, "own") if read else None
    if start is not None:
        start[:, revived] = 0.0
    w = nonnegative_rows(_products(block.rows, components), components @ components.T, start, sweeps, 1e-6)
    store.put(write, block.number, {"own": w})
    weighted = w if block.weights is None else w * block.weights[:, None]
    return {"cross": np.asarray((block.rows.T @ weighted).T), "gram": weighted.T @ w}


def worst_block(block: RowBlock, components: Array, count: int, store: Exchange, read: str) -> Parts:
    """What is left of the ``count`` rows that W H misses most, ``rest`` (count, d), and m ‖rest‖², largest first."""
    w = store.get(read, block.number, "own")
    assert w is not None
    rows = block.rows
    squares = (
        rows.multiply(rows).sum(axis=1) if is_sparse(rows) else np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    )
    gaps = np.asarray(squares).ravel()
    gaps += np.einsum("ij,ij->i", w @ (components @ components.T) - 2 * _products(rows, components), w)
    if block.weights is not None:
        gaps *= block.weights
    chosen = np.argsort(-gaps, kind="stable")[:count]
    picked = rows[chosen].toarray() if is_sparse(rows) else rows[chosen]
    rest = np.zeros((count, rows.shape[1]))
    rest[: len(chosen)] = picked - w[chosen] @ components
    long = np.zeros(count)
    long[: len(chosen)] = np.einsum("ij,ij->i", rest, rest)[: len(chosen)]
    return {"rest": rest, "squares": long}


def keep_worst(left: Parts, right: Parts) -> Parts:
    """The rows of both that are missed most."""
    rest = np.concatenate([left["rest"], right["rest"]])
    squares = np.concatenate([left["squares"], right["squares"]])
    chosen = np.argsort(-squares, kind="stable")[: len(left["rest"])]
    return {"rest": rest[chosen], "squares": squares[chosen]}


def unlike(rest: Array, count: int) -> Array:
    """At most ``count`` of the rows (their positive parts), each the longest besides what those before it explain."""
    parts, left = np.maximum(rest, 0.0), np.maximum(rest, 0.0)
    chosen: list[Array] = []
    while len(chosen) < count:
        squares = np.einsum("ij,ij->i", left, left)
        first = int(np.argmax(squares))
        if not squares[first] > 0:
            break
        chosen.append(parts[first])
        direction = left[first] / np.sqrt(squares[first])
        left = np.maximum(left - np.outer(left @ direction, direction), 0.0)
    return np.array(chosen).reshape(len(chosen), rest.shape[1])


def error_block(block: RowBlock, components: Array) -> Parts:
    """Σ m ‖x − w H‖² with the exact w of each row, from the differences themselves."""
    gram = components @ components.T
    products = _products(block.rows, components)
    w = nonnegative_rows(products, gram)
    m = np.ones(len(w)) if block.weights is None else block.weights
    if is_sparse(block.rows):
        long = np.asarray(block.rows.astype(np.float64).power(2).sum(axis=1)).ravel()
        squares = long + np.einsum("ij,ij->i", w @ gram - 2 * products, w)
        return {"error": np.array(float(m @ np.maximum(squares, 0.0)))}
    total = 0.0
    for start in range(0, len(w), 1024):
        part = slice(start, start + 1024)
        apart = block.rows[part] - w[part] @ components
        total += float(m[part] @ np.einsum("ij,ij->i", apart, apart))
    return {"error": np.array(total)}


def survey_stage(source: RowSource, gram: bool) -> Stage:
    """Σ x, ‖X‖², the sign of the entries and, for singular vectors, XᵀX: one pass."""
    d = source.shape[1]

    writes = [ArraySpec("sum", d), ArraySpec("gram", d * gram, d * gram)]
    cost, parameters = _cost(source, 1, 1, writes, writes[1].nbytes), {"source": source.fingerprint(), "gram": gram}
    return Stage("survey", (), parameters, partial(run_survey, source=source, gram=gram), cost)


def run_survey(context: Context, source: RowSource, gram: bool) -> dict[str, Any]:
    n, d = source.shape
    found = reduce_rows(
        source,
        total_block,
        context.exchange,
        combine=combine_totals,
        partial_bytes=8 * d * d * gram,
        first=True,
        label="survey",
        gram=gram,
    )
    if not found["weight"] > 0:
        raise InputError("weights must contain at least one that is not zero: all are zero")
    if found["lowest"] < 0:
        raise InputError(
            f"Negative values in data passed to NMF: the smallest entry is {float(found['lowest']):.6g}; all must "
            "be ≥ 0. Shift or clip them, or use PCA"
        )
    write_array(context.path("sum"), found["sum"])
    write_array(context.path("gram"), found["gram"])
    mean = float(found["sum"].sum() / (found["weight"] * d)) if found["weight"] else 0.0
    return {"n": n, "d": d, "dtype": str(source.work), "squares": float(found["squares"]), "mean": mean, "passes": 1}


def start_stage(source: RowSource, m: int, start: Any, seed: int) -> Stage:
    """H at the start: at most one pass."""
    singular, parameters = isinstance(start, str) and start != "random", {"m": m, "start": start, "seed": seed}
    cost = _cost(source, int(singular), m, [ArraySpec("components", m, source.shape[1])])
    run = partial(run_start, source=source, singular=singular, **parameters)
    return Stage("start", ("survey",), parameters, run, cost)


def run_start(context: Context, source: RowSource, singular: bool, m: int, start: Any, seed: int) -> dict[str, Any]:
    mean = context.results("survey")["mean"]
    if singular:
        vectors, sigma = singular_vectors(read_array(context.of("survey", "gram")), m)
        masses = reduce_rows(source, parts_block, context.exchange, label="start", vectors=vectors)["masses"]
        components = filled(nndsvd(vectors, sigma, masses), start, mean, seed)
    else:
        components = random_start(m, source.shape[1], mean, seed) if start == "random" else np.asarray(start)
    write_array(context.path("components"), components)
    return {"passes": int(singular), "seed": seed}


def factors_stage(source: RowSource, m: int, tol: float, max_iter: int) -> Stage:
    """Alternating descent; its state is in the exchange after every pass."""

    parameters: dict[str, Any] = {"tol": tol, "max_iter": max_iter}
    writes = [ArraySpec("components", m, source.shape[1]), ArraySpec("objectives", 0)]
    cost = _cost(source, min(max_iter, PLANNED) + 1, m, writes)
    run = partial(run_factors, source=source, **parameters)
    return Stage("factors", ("survey", "start"), parameters, run, cost, resumes=True)


def run_factors(context: Context, source: RowSource, tol: float, max_iter: int) -> dict[str, Any]:
    return Factors(source, context, tol, max_iter).run("‖X − WH‖²")


class Factors(RowDescent):
    """H, and W in the exchange under its generation."""

    state = ("components", "revived", "revivals")

    def begin(self) -> None:
        """H as it starts; no component is revived."""
        self.components, self.objectives = read_array(self.context.of("start", "components")), []
        self.revived, self.revivals = np.zeros(len(self.components), np.bool_), 0

    @property
    def squares(self) -> float:
        """‖X‖²."""
        return float(self.context.results("survey")["squares"])

    @property
    def converged(self) -> bool:
        """Whether another step would not help; one helps after a component was made anew."""
        return self.last_step <= self.tol and not self.revived.any()

    def move(self) -> None:
        """One pass: W for H, then H for W."""
        read = f"weights{self.done}" if self.done else ""
        write = f"weights{self.done + 1}"
        m, d = self.components.shape
        found = self.sums(
            factor_block,
            f"factors{self.done + 1}",
            partial_bytes=8 * m * d,
            components=self.components,
            # as many sweeps over W as cost about what its products with H cost (Gillis & Glineur 2012, §4.1)
            sweeps=int(np.clip(d // m, 4, 40)),
            store=self.exchange,
            read=read,
            write=write,
            revived=self.revived,
        )
        cross, gram = found["cross"], found["gram"]
        self.components = np.ascontiguousarray(nonnegative_rows(cross.T, gram, self.components.T, INNER, 1e-6).T)
        fitted = float(np.vdot(gram, self.components @ self.components.T) - 2 * np.vdot(cross, self.components))
        self.objectives.append(max(0.0, self.squares + fitted))
        self._revive(write)
        self.keep()
        if read:
            self.exchange.drop(read)

    def _revive(self, read: str) -> None:
        """A component that no row has any of, which stays so for good, becomes what is left of a row missed most.

        That leaves the error as it is, and the next pass lowers it. One pass, where there is such a component.
        """
        empty = np.flatnonzero(~self.components.any(axis=1))
        self.revived = np.zeros(len(self.components), np.bool_)
        if not len(empty) or self.revivals >= REVIVALS or self.objectives[-1] <= NOTHING * self.squares:
            return
        found = self.sums(
            worst_block,
            f"worst{self.done}",
            combine=keep_worst,
            partial_bytes=8 * 2 * self.components.size,
            components=self.components,
            count=2 * len(empty),
            store=self.exchange,
            read=read,
        )
        fresh = unlike(found["rest"], len(empty))
        self.revivals += 1
        self.components[empty[: len(fresh)]] = fresh
        self.revived[empty[: len(fresh)]] = True

    def publish(self) -> dict[str, Any]:
        """H, the objectives, and the error with the exact weights: one more pass."""
        final = self.sums(error_block, "error", components=self.components)
        objectives = [*self.objectives, min(float(final["error"]), self.objectives[-1])]
        write_array(self.context.path("components"), self.components)
        write_array(self.context.path("objectives"), np.array(objectives))
        start = self.context.results("start")
        return {
            "n_components": len(self.components),
            "converged": self.last_step <= self.tol,
            "passes": self.done + 1 + self.revivals,
            "start_passes": start["passes"],
            "seed": start["seed"],
        }


def _cost(source: RowSource, passes: int, m: int, writes: Arrays, sums: int = 0) -> Cost:
    n, d = source.shape
    weights, components = ArraySpec("weights", n, m), ArraySpec("components", m, d)
    return summing_cost(source, sums, passes) + Cost.of(
        reads=[replace(weights, times=passes)],
        writes=writes,
        vectors=[replace(weights, times=2)],
        posts=[replace(weights, times=passes)],
        task=[ArraySpec("weights", source.largest_block, m, times=6), replace(components, times=4)],
        coordinator=[replace(components, times=10)],
        flops=6 * passes * n * d * m,
        scalar_ops=passes * n * m * m,
    )
