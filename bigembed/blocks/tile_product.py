"""Products of small dense matrices for the compiled kernels, in registers: no call of BLAS, no copies.

Sums are taken in a fixed order, by fused multiplication and addition where the processor has it (as BLAS does).
Importing this imports numba.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, njit, types
from numba.core import cgutils
from numba.np import arrayobj

intrinsic: Any = extending.intrinsic
_make_array: Any = arrayobj.make_array
_allocate: Any = cgutils.alloca_once
_declared: Any = cgutils.get_or_insert_function

LANES = 8
"""Widths are multiples of it."""
ROWS = 4
"""Of a result at a time."""

_INT32 = ir.IntType(32)
_VECTOR = ir.VectorType(ir.DoubleType(), LANES)


def _broadcast(builder: Any, value: Any, kind: Any) -> Any:
    if value.type != kind.element:
        value = builder.fpext(value, kind.element)
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(_INT32, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_INT32, LANES), [0] * LANES))


def _added(rows: int, groups: int) -> Any:
    """out[r, c] += Σ_k a[a_at + r a_row + k a_step] b[k, c] for ``rows`` rows and ``groups`` times LANES columns."""

    @intrinsic
    def added(
        _typing: Any, out: Any, out_at: Any, a: Any, a_at: Any, a_row: Any, a_step: Any, count: Any, b: Any, b_at: Any,
        width: Any,
    ) -> Any:  # fmt: skip
        signature = types.void(out, types.intp, a, *[types.intp] * 4, b, types.intp, types.intp)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            target, left, right = (_make_array(kinds[place])(context, builder, args[place]).data for place in (0, 2, 7))
            out_at, a_at, a_row, a_step, count, b_at, width = (args[place] for place in (1, 3, 4, 5, 6, 8, 9))
            intp, bits = out_at.type, kinds[0].dtype.bitwidth
            kind = ir.VectorType(context.get_value_type(kinds[0].dtype), LANES)

            def vector(data: Any, at: Any, group: int) -> Any:
                place = builder.gep(data, [builder.add(at, ir.Constant(intp, group * LANES))])
                return builder.bitcast(place, kind.as_pointer())

            every = [(r, g) for r in range(rows) for g in range(groups)]
            places = {
                (r, g): vector(target, builder.add(out_at, builder.mul(width, ir.Constant(intp, r))), g)
                for r, g in every
            }
            sums = {one: _allocate(builder, kind) for one in every}
            for one in every:
                builder.store(builder.load(places[one], align=4), sums[one])
            fused = _declared(builder.module, ir.FunctionType(kind, [kind] * 3), f"llvm.fmuladd.v{LANES}f{bits}")
            with cgutils.for_range(builder, count, intp=intp) as loop:
                at = builder.add(b_at, builder.mul(loop.index, width))
                row = [builder.load(vector(right, at, g), align=4) for g in range(groups)]
                first = builder.add(a_at, builder.mul(loop.index, a_step))
                for r in range(rows):
                    place = builder.add(first, builder.mul(a_row, ir.Constant(intp, r)))
                    value = _broadcast(builder, builder.load(builder.gep(left, [place])), kind)
                    for g in range(groups):
                        builder.store(builder.call(fused, [value, row[g], builder.load(sums[r, g])]), sums[r, g])
            for one in every:
                builder.store(builder.load(sums[one]), places[one], align=4)
            return context.get_dummy_value()

        return signature, generate

    return added


_added_4_2, _added_4_1, _added_1_2, _added_1_1 = _added(ROWS, 2), _added(ROWS, 1), _added(1, 2), _added(1, 1)


@intrinsic
def _moved(_typing: Any, out: Any, at: Any, x: Any, x_at: Any) -> Any:
    """LANES numbers of x to out, in whose precision they are."""
    signature = types.void(out, types.intp, x, types.intp)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places = []
        for place in (0, 2):
            array = _make_array(signature.args[place])(context, builder, args[place])
            kind = ir.VectorType(context.get_value_type(signature.args[place].dtype), LANES)
            places.append((builder.bitcast(builder.gep(array.data, [args[place + 1]]), kind.as_pointer()), kind))
        (target, to), (source, of) = places
        value = builder.load(source, align=4)
        if to != of:
            value = (builder.fptrunc if isinstance(to.element, ir.FloatType) else builder.fpext)(value, to)
        builder.store(value, target, align=4)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def settle_lanes(_typing: Any, tiles: Any, at: Any, step: Any, limits: Any, place: Any, size: Any) -> Any:
    """Of LANES columns of a row of flat tiles x, q, ax, aq, r, each ``step`` after the one before:

    r ← ax − x · values, sums ← sums + r², q ← q · inverse, aq ← aq · inverse. ``limits``: values, inverse, sums, each
    ``size`` after the one before, from ``place`` on.
    """
    signature = types.void(tiles, types.intp, types.intp, limits, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def pointers(place: int, at: Any, step: Any, count: int) -> list[Any]:
            data = _make_array(signature.args[place])(context, builder, args[place]).data
            offsets = [builder.add(at, builder.mul(step, ir.Constant(step.type, k))) for k in range(count)]
            return [builder.bitcast(builder.gep(data, [offset]), _VECTOR.as_pointer()) for offset in offsets]

        rows, line = pointers(0, args[1], args[2], 5), pointers(3, args[4], args[5], 3)
        x, q, ax, aq = (builder.load(row, align=8) for row in rows[:4])
        values, inverse, sums = (builder.load(part, align=8) for part in line)
        r = builder.fsub(ax, builder.fmul(x, values))
        results = (builder.fmul(q, inverse), builder.fmul(aq, inverse), r, builder.fadd(sums, builder.fmul(r, r)))
        for value, target in zip(results, (rows[1], rows[3], rows[4], line[2]), strict=True):
            builder.store(value, target, align=8)
        return context.get_dummy_value()

    return signature, generate


@njit(nogil=True)
def move(out: Any, at: Any, x: Any, x_at: Any, columns: Any) -> None:
    """out[at + c] ← x[x_at + c] of flat arrays for c < ``columns``, in the precision of ``out``."""
    if columns < LANES:
        for c in range(columns):
            out[at + c] = x[x_at + c]
    else:
        for c in range(0, columns, LANES):
            c = min(c, columns - LANES)
            _moved(out, at + c, x, x_at + c)


@njit(nogil=True)
def add_product(
    out: Any, a: Any, a_at: Any, a_row: Any, a_step: Any, rows: Any, count: Any, b: Any, first: Any = 0,
    b_first: Any = 0,
) -> None:  # fmt: skip
    """out[first + r] ← itself + Σ_k a[a_at + r · a_row + k · a_step] b[b_first + k] for r < ``rows``, k < ``count``.

    Sums are taken in this order, in the precision of ``out`` and ``b``, which are of one width, a multiple of
    :data:`LANES`. ``a``, of which places are counted flat, is in that precision or in single. All are contiguous.
    """
    width = b.shape[1]
    four = rows - rows % ROWS
    at, begin = first * width, b_first * width
    for c in range(0, width - LANES, 2 * LANES):
        for r in range(0, four, ROWS):
            _added_4_2(out, at + r * width + c, a, a_at + r * a_row, a_row, a_step, count, b, begin + c, width)
        for r in range(four, rows):
            _added_1_2(out, at + r * width + c, a, a_at + r * a_row, a_row, a_step, count, b, begin + c, width)
    if width % (2 * LANES):
        c = width - LANES
        for r in range(0, four, ROWS):
            _added_4_1(out, at + r * width + c, a, a_at + r * a_row, a_row, a_step, count, b, begin + c, width)
        for r in range(four, rows):
            _added_1_1(out, at + r * width + c, a, a_at + r * a_row, a_row, a_step, count, b, begin + c, width)
