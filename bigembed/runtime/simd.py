"""Vector arithmetic for the compiled kernels, with one fixed order of every sum on any machine.

The compiler may not reorder sums of floating-point numbers, so plain loops stay scalar. Here the eight
lanes of :func:`bigembed.distance.pairwise.paired_squared` are written as one vector: LLVM maps it to what
the processor has, with the same bits as NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, njit, types
from numba.core import cgutils
from numba.np import arrayobj

from bigembed.runtime.blocks import Array

# ------------------------------------------------------------------------------------------------------------ llvm
# What functions written in LLVM's own instructions take from numba and llvmlite, which declare no types.
#
#

intrinsic: Any = extending.intrinsic
make_array: Any = arrayobj.make_array
allocate: Any = cgutils.alloca_once
declared: Any = cgutils.get_or_insert_function


# ------------------------------------------------------------------------------------------------------------ simd

_LANES = 8
_BITS = 16
_INT32 = ir.IntType(32)
_BYTE = ir.IntType(8)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Pointer to an element of a contiguous array, counted flat."""
    return builder.gep(make_array(array_type)(context, builder, array).data, [index])


@intrinsic
def squared_distance(_typing: Any, a: Any, a_at: Any, b: Any, b_at: Any, n_features: Any) -> Any:
    """‖x − y‖² in float64, of the ``n_features`` elements at a[a_at] and b[b_at] of contiguous arrays."""
    signature = types.float64(a, types.intp, b, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scalar = context.get_value_type(signature.args[0].dtype)
        size = signature.args[0].dtype.bitwidth // 8
        narrow, wide = ir.VectorType(scalar, _LANES), ir.VectorType(ir.DoubleType(), _LANES)
        x = _address(context, builder, signature.args[0], args[0], args[1])
        y = _address(context, builder, signature.args[2], args[2], args[3])
        n, intp = args[4], args[4].type

        def difference(at: Any, kind: Any, target: Any) -> Any:
            pointers = [builder.bitcast(builder.gep(p, [at]), kind.as_pointer()) for p in (x, y)]
            values = [builder.load(pointer, align=size) for pointer in pointers]
            if size != 8:
                values = [builder.fpext(value, target) for value in values]
            return builder.fsub(*values)

        lanes = allocate(builder, wide)
        builder.store(ir.Constant(wide, [0.0] * _LANES), lanes)
        zero, one, step = (ir.Constant(intp, value) for value in (0, 1, _LANES))
        whole = builder.and_(n, ir.Constant(intp, -_LANES))
        with cgutils.for_range_slice(builder, zero, whole, step, intp) as (at, _):
            t = difference(at, narrow, wide)
            builder.store(builder.fadd(builder.load(lanes), builder.fmul(t, t)), lanes)
        with cgutils.for_range_slice(builder, whole, n, one, intp) as (at, _):
            t = difference(at, scalar, ir.DoubleType())
            lane, sums = builder.sub(at, whole), builder.load(lanes)
            total = builder.fadd(builder.extract_element(sums, lane), builder.fmul(t, t))
            builder.store(builder.insert_element(sums, total, lane), lanes)
        sums = builder.load(lanes)
        tree = [builder.extract_element(sums, ir.Constant(_INT32, lane)) for lane in range(_LANES)]
        while len(tree) > 1:
            half = len(tree) // 2
            tree = [builder.fadd(tree[i], tree[i + half]) for i in range(half)]
        return tree[0]

    return signature, generate


def _pair(builder: Any, lanes: int) -> Callable[..., Any]:
    """Where two vectors of ``lanes`` numbers stand, at two columns of a row."""

    def pointers(data: Any, row: Any, columns: Any) -> list[Any]:
        vector = ir.VectorType(data.type.pointee, lanes)
        return [
            builder.bitcast(builder.gep(data, [builder.add(row, column)]), vector.as_pointer()) for column in columns
        ]

    return pointers


def _wide(builder: Any, place: Any) -> Any:
    """The vector there, in double precision."""
    value = builder.load(place, align=4)
    single = isinstance(value.type.element, ir.FloatType)
    return builder.fpext(value, ir.VectorType(ir.DoubleType(), value.type.count)) if single else value


def _alike(builder: Any, value: Any, lanes: int) -> Any:
    """A vector of one number."""
    if not isinstance(value.type, ir.DoubleType):
        value = builder.fpext(value, ir.DoubleType())
    nothing = ir.Constant(ir.VectorType(ir.DoubleType(), lanes), ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(_INT32, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_INT32, lanes), [0] * lanes))


def _row_functions(lanes: int) -> tuple[Any, Any]:
    """Both functions below for ``lanes`` columns at a time."""

    @intrinsic
    def weighted(
        _typing: Any, out: Any, at: Any, weight: Any, start: Any, stop: Any, index: Any, shift: Any, x: Any, far: Any,
        width: Any, left: Any, right: Any,
    ) -> Any:  # fmt: skip
        signature = types.void(
            out, types.intp, weight, types.intp, types.intp, index, types.intp, x, far, types.intp, types.intp,
            types.intp,
        )  # fmt: skip

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            first, weights, indices, own, other = (
                make_array(kinds[place])(context, builder, args[place]) for place in (0, 2, 5, 7, 8)
            )
            intp, pair = args[1].type, _pair(builder, lanes)
            vector = ir.VectorType(ir.DoubleType(), lanes)
            sums = [allocate(builder, vector) for _ in range(2)]
            for total in sums:
                builder.store(ir.Constant(vector, [0.0] * lanes), total)
            rows = builder.extract_value(own.shape, 0)
            beyond = builder.gep(other.data, [builder.neg(builder.mul(rows, args[9]))])
            with cgutils.for_range_slice(builder, args[3], args[4], ir.Constant(intp, 1), intp) as (e, _):
                j = builder.load(builder.gep(indices.data, [builder.add(e, args[6])]))
                j = builder.sext(j, intp) if j.type.width < intp.width else j
                data = builder.select(builder.icmp_signed("<", j, rows), own.data, beyond)
                value = _alike(builder, builder.load(builder.gep(weights.data, [e])), lanes)
                for total, place in zip(sums, pair(data, builder.mul(j, args[9]), args[10:12]), strict=True):
                    term = builder.fmul(value, _wide(builder, place))
                    builder.store(builder.fadd(builder.load(total), term), total)
            for total, place in zip(sums, pair(first.data, args[1], args[10:12]), strict=True):
                builder.store(builder.load(total), place, align=8)
            return context.get_dummy_value()

        return signature, generate

    @intrinsic
    def added(_typing: Any, out: Any, at: Any, value: Any, x: Any, x_at: Any, left: Any, right: Any) -> Any:
        signature = types.void(out, types.intp, value, x, types.intp, types.intp, types.intp)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds = signature.args
            first, second = (make_array(kinds[place])(context, builder, args[place]) for place in (0, 3))
            pair, value = _pair(builder, lanes), _alike(builder, args[2], lanes)
            targets = pair(first.data, args[1], args[5:7])
            terms = [
                builder.fmul(value, builder.load(place, align=8)) for place in pair(second.data, args[4], args[5:7])
            ]
            sums = [
                builder.fadd(builder.load(place, align=8), term) for place, term in zip(targets, terms, strict=True)
            ]
            for total, place in zip(sums, targets, strict=True):
                builder.store(total, place, align=8)
            return context.get_dummy_value()

        return signature, generate

    return weighted, added


_weighted8, _added8 = _row_functions(8)
_weighted4, _added4 = _row_functions(4)
_weighted1, _added1 = _row_functions(1)


@njit(nogil=True)
def weighted_rows(
    out: Any, at: Any, weight: Any, start: Any, stop: Any, index: Any, shift: Any, x: Any, far: Any, column: Any = 0
) -> None:
    """Row ``at`` of out ← Σ_e weight[e] x[index[e + shift]] for e = start … stop − 1, in this order.

    All are contiguous, ``out`` in double precision, the others in double or single; rows from len(x) on are those of
    ``far``. Columns before ``column`` may be left out.
    """
    width = x.shape[1]
    first = at * width
    if width >= 8:
        for c in range(column, width, 16):
            _weighted8(
                out, first, weight, start, stop, index, shift, x, far, width, min(c, width - 8), min(c + 8, width - 8)
            )
    elif width >= 4:
        _weighted4(out, first, weight, start, stop, index, shift, x, far, width, 0, width - 4)
    else:
        for c in range(width):
            _weighted1(out, first, weight, start, stop, index, shift, x, far, width, c, c)


@njit(nogil=True)
def add_row(out: Any, at: Any, value: Any, x: Any, x_at: Any) -> None:
    """Row ``at`` of out ← itself + value · row ``x_at`` of x; float64, contiguous, of one width."""
    width = x.shape[1]
    first, second = at * width, x_at * width
    if width >= 8:
        c = 0
        while width - c > 16:
            _added8(out, first, value, x, second, c, c)
            c += 8
        _added8(out, first, value, x, second, c, width - 8)  # (what both hold is read before it is written)
    elif width >= 4:
        _added4(out, first, value, x, second, 0, width - 4)
    else:
        for c in range(width):
            _added1(out, first, value, x, second, c, c)


@intrinsic
def near_bits(_typing: Any, a: Any, a_at: Any, b: Any, b_at: Any, limit: Any) -> Any:
    """Bits j = 0…15 of a uint32, set unless a[a_at + j] + b[b_at + j] > limit (so set for NaN)."""
    signature = types.uint32(a, types.intp, b, types.intp, limit)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        dtype = signature.args[0].dtype
        vector = ir.VectorType(context.get_value_type(dtype), _BITS)

        def load(array: int) -> Any:
            pointer = _address(context, builder, signature.args[array], args[array], args[array + 1])
            return builder.load(builder.bitcast(pointer, vector.as_pointer()), align=dtype.bitwidth // 8)

        nothing = ir.Constant(vector, ir.Undefined)
        first = builder.insert_element(nothing, args[4], ir.Constant(_INT32, 0))
        same = ir.Constant(ir.VectorType(_INT32, _BITS), [0] * _BITS)
        limits = builder.shuffle_vector(first, nothing, same)
        far = builder.fcmp_ordered(">", builder.fadd(load(0), load(2)), limits)
        return builder.zext(builder.bitcast(builder.not_(far), ir.IntType(_BITS)), _INT32)

    return signature, generate


@intrinsic
def lowest_bit(_typing: Any, bits: Any) -> Any:
    """Position of the lowest bit of a uint32 that is set (32 if none)."""
    signature = types.intp(types.uint32)

    def generate(_context: Any, builder: Any, signature: Any, args: Any) -> Any:
        count = builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))
        return builder.zext(count, ir.IntType(signature.return_type.bitwidth))

    return signature, generate


@intrinsic
def prefetch(_typing: Any, a: Any, at: Any) -> Any:
    """Begin to bring a[at] into the processor's cache; changes nothing."""
    signature = types.void(a, types.intp)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.bitcast(_address(context, builder, signature.args[0], *args), _BYTE.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, _INT32, _INT32, _INT32])
        function = declared(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(function, [pointer, *(ir.Constant(_INT32, said) for said in (0, 3, 1))])  # to read; to keep; data
        return context.get_dummy_value()

    return signature, generate


# ------------------------------------------------------------------------------------------------------- insertion
# A row into an ordered list of the nearest, compiled.


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
