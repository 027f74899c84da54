"""Arithmetic of the compiled kernels: products of small dense matrices and sums, each in one order on any machine.

Products are taken in registers, without a call of BLAS and without copies, by fused multiplication and addition where
the processor has it (as BLAS does). Importing this imports numba.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, njit, types
from numba.core import cgutils
from numba.np import arrayobj

from bigembed.runtime.blocks import Array

# ------------------------------------------------------------------------------------------------------------- tiles

# What functions written in LLVM's own instructions take from numba, which declares no types.
intrinsic: Any = extending.intrinsic
make_array: Any = arrayobj.make_array
allocate: Any = cgutils.alloca_once
declared: Any = cgutils.get_or_insert_function

LANES = 8
"""Widths are multiples of it."""
ROWS = 4
"""Of a result at a time."""

_INT32 = ir.IntType(32)


def _broadcast(builder: Any, value: Any, kind: Any) -> Any:
    if value.type != kind.element:
        value = builder.fpext(value, kind.element)
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(_INT32, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_INT32, kind.count), [0] * kind.count))


@dataclass(frozen=True)
class _Place:
    """Where a tile of a product begins: flat arrays, and numbers in the processor."""

    out: Any
    out_at: Any
    a: Any
    a_at: Any
    a_row: Any
    a_step: Any
    count: Any
    b: Any
    b_at: Any
    width: Any


def _add_tile(builder: Any, rows: int, groups: int, place: _Place) -> None:
    """out[r, c] += Σ_k a[r, k] b[k, c] for ``rows`` rows and ``groups`` times LANES columns from a place on."""
    intp, out, kind = place.count.type, place.out.type.pointee, ir.VectorType(place.out.type.pointee, LANES)
    bits = 64 if isinstance(out, ir.DoubleType) else 32

    def vector(data: Any, at: Any, group: int) -> Any:
        first = builder.gep(data, [builder.add(at, ir.Constant(intp, group * LANES))])
        return builder.bitcast(first, kind.as_pointer())

    every = [(r, g) for r in range(rows) for g in range(groups)]
    places = {
        (r, g): vector(place.out, builder.add(place.out_at, builder.mul(place.width, ir.Constant(intp, r))), g)
        for r, g in every
    }
    sums = {one: allocate(builder, kind) for one in every}
    for one in every:
        builder.store(builder.load(places[one], align=4), sums[one])
    fused = declared(builder.module, ir.FunctionType(kind, [kind] * 3), f"llvm.fmuladd.v{LANES}f{bits}")
    with cgutils.for_range(builder, place.count, intp=intp) as loop:
        at = builder.add(place.b_at, builder.mul(loop.index, place.width))
        row = [builder.load(vector(place.b, at, g), align=4) for g in range(groups)]
        first = builder.add(place.a_at, builder.mul(loop.index, place.a_step))
        for r in range(rows):
            number = builder.gep(place.a, [builder.add(first, builder.mul(place.a_row, ir.Constant(intp, r)))])
            value = _broadcast(builder, builder.load(number), kind)
            for g in range(groups):
                builder.store(builder.call(fused, [value, row[g], builder.load(sums[r, g])]), sums[r, g])
    for one in every:
        builder.store(builder.load(sums[one]), places[one], align=4)


def _add_product_of(module: Any, out: Any, a: Any) -> Any:
    """The function of a module that adds products of these kinds of numbers.

    It stands once in what is compiled, and is called there: copies of it in place of the calls took most of the time
    in which its callers are compiled.
    """
    intp = ir.IntType(64)
    kind = ir.FunctionType(ir.VoidType(), [*(one.as_pointer() for one in (out, a, out)), *[intp] * 8])
    function = declared(module, kind, f"bigembed.add_product.{out}.{a}")
    if function.blocks:
        return function
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    to, of, by, out_at, a_at, a_row, a_step, rows, count, b_at, width = function.args
    zero, lanes, both, four = (ir.Constant(intp, value) for value in (0, LANES, 2 * LANES, ROWS))
    whole = builder.sub(rows, builder.urem(rows, four))

    def columns(at: Any, groups: int) -> None:
        for start, stop, step in ((zero, whole, four), (whole, rows, ir.Constant(intp, 1))):
            with cgutils.for_range_slice(builder, start, stop, step, intp) as (r, _):
                place = _Place(
                    to, builder.add(builder.add(out_at, at), builder.mul(r, width)), of,
                    builder.add(a_at, builder.mul(r, a_row)), a_row, a_step, count, by, builder.add(b_at, at), width,
                )  # fmt: skip
                _add_tile(builder, ROWS if step is four else 1, groups, place)

    with cgutils.for_range_slice(builder, zero, builder.sub(width, lanes), both, intp) as (at, _):
        columns(at, 2)
    with builder.if_then(builder.icmp_unsigned("!=", builder.urem(width, both), zero)):
        columns(builder.sub(width, lanes), 1)
    builder.ret_void()
    return function


@intrinsic
def add_product(
    _typing: Any, out: Any, out_at: Any, a: Any, a_at: Any, a_row: Any, a_step: Any, rows: Any, count: Any, b: Any,
    b_at: Any, width: Any,
) -> Any:  # fmt: skip
    """out[out_at + r · width + c] ← itself + Σ_k a[a_at + r · a_row + k · a_step] b[b_at + k · width + c] for
    r < ``rows``, k < ``count``, c < ``width``.

    Places are counted flat in contiguous arrays. Sums are taken in this order, in the precision of ``out`` and ``b``;
    ``a`` is in that precision or in single. ``width`` is a multiple of :data:`LANES`.
    """
    signature = types.void(out, types.intp, a, *[types.intp] * 5, b, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = [signature.args[place] for place in (0, 2, 8)]
        data = [
            make_array(kind)(context, builder, args[place]).data for kind, place in zip(kinds, (0, 2, 8), strict=True)
        ]
        function = _add_product_of(builder.module, *(context.get_value_type(kind.dtype) for kind in kinds[:2]))
        builder.call(function, [*data, args[1], *args[3:8], *args[9:]])
        return context.get_dummy_value()

    return signature, generate


@njit(nogil=True)
def add_rows(out: Any, at: Any, a: Any, begin: Any, rows: Any, b: Any) -> None:
    """Rows of out from ``at`` on ← themselves + a b for ``rows`` rows of a from ``begin`` on: :func:`add_product`."""
    inner, width = a.shape[1], b.shape[1]
    add_product(out, at * width, a, begin * inner, inner, 1, rows, inner, b, 0, width)


@njit(nogil=True)
def add_inner(out: Any, at: Any, a: Any, begin: Any, rows: Any, b: Any, b_begin: Any) -> None:
    """Rows of out from ``at`` on ← themselves + aᵀb for ``rows`` rows of each, from where they begin on:
    :func:`add_product`."""
    inner, width = a.shape[1], b.shape[1]
    add_product(out, at * width, a, begin * inner, 1, inner, inner, rows, b, b_begin * width, width)


@njit(nogil=True)
def move(out: Any, at: Any, first: Any, x: Any, begin: Any, rows: Any, columns: Any) -> None:
    """out[at + r, first + c] ← x[begin + r, c] for r < ``rows``, c < ``columns``, in the precision of ``out``."""
    for r in range(rows):
        for c in range(columns):
            out[at + r, first + c] = x[begin + r, c]


# -------------------------------------------------------------------------------------------------------------- sums


@njit(nogil=True)
def _square(a: Array, i: int, b: Array, j: int, f: int) -> float:
    difference = np.float64(a[i, f]) - np.float64(b[j, f])
    return difference * difference


@njit(nogil=True)
def squared_distance(a: Array, i: int, b: Array, j: int) -> float:
    """‖a_i − b_j‖² in float64, summed in eight parts as :func:`bigembed.distance.paired_squared` does."""
    d = a.shape[1]
    rest = d % 8
    whole = d - rest
    s0, s1, s2, s3, s4, s5, s6, s7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for f in range(0, whole, 8):
        s0 += _square(a, i, b, j, f)
        s1 += _square(a, i, b, j, f + 1)
        s2 += _square(a, i, b, j, f + 2)
        s3 += _square(a, i, b, j, f + 3)
        s4 += _square(a, i, b, j, f + 4)
        s5 += _square(a, i, b, j, f + 5)
        s6 += _square(a, i, b, j, f + 6)
        s7 += _square(a, i, b, j, f + 7)
    s0 += _square(a, i, b, j, whole) if rest > 0 else 0.0
    s1 += _square(a, i, b, j, whole + 1) if rest > 1 else 0.0
    s2 += _square(a, i, b, j, whole + 2) if rest > 2 else 0.0
    s3 += _square(a, i, b, j, whole + 3) if rest > 3 else 0.0
    s4 += _square(a, i, b, j, whole + 4) if rest > 4 else 0.0
    s5 += _square(a, i, b, j, whole + 5) if rest > 5 else 0.0
    s6 += _square(a, i, b, j, whole + 6) if rest > 6 else 0.0
    return ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))


@njit(nogil=True)
def weighted_rows(
    out: Any, at: Any, weight: Any, start: Any, stop: Any, index: Any, shift: Any, x: Any, far: Any, column: Any
) -> None:
    """Row ``at`` of out ← Σ_e weight[e] x[index[e + shift]] for e = start … stop − 1, in this order, in float64.

    Rows from len(x) on are those of ``far``. All three have as many columns. Those before ``column`` are not asked for:
    what stands in them afterwards means nothing.
    """
    count, width = x.shape
    for c in range(column, width):
        out[at, c] = 0.0
    for e in range(start, stop):
        number = index[e + shift]
        row = x[number] if number < count else far[number - count]
        for c in range(column, width):
            out[at, c] += np.float64(weight[e]) * row[c]


@njit(nogil=True)
def add_row(out: Any, at: Any, value: Any, x: Any, x_at: Any) -> None:
    """Row ``at`` of out ← itself + value · row ``x_at`` of x, in float64."""
    for c in range(x.shape[1]):
        out[at, c] += np.float64(value) * x[x_at, c]


@njit(cache=True, nogil=True)
def insert(ids: Array, squared: Array, number: int, value: Any) -> None:
    """Put (value, number) in its place of one list, if it belongs there and is not there already."""
    p = squared.shape[0] - 1
    if value > squared[p] or (value == squared[p] and ids[p] >= 0 and number >= ids[p]):
        return
    q = p
    while q > 0 and (squared[q - 1] > value or ids[q - 1] < 0):
        q -= 1
    while q > 0 and squared[q - 1] == value and ids[q - 1] > number:
        q -= 1
    if q > 0 and squared[q - 1] == value and ids[q - 1] == number:
        return
    while p > q:
        squared[p] = squared[p - 1]
        ids[p] = ids[p - 1]
        p -= 1
    squared[q] = value
    ids[q] = number
