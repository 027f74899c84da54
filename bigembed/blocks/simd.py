"""Vector arithmetic for the compiled kernels, with one fixed order of every sum on any machine.

The compiler may not reorder sums of floating-point numbers, so plain loops stay scalar. Here the eight
lanes of :func:`bigembed.blocks.squared.paired_squared` are written as one vector: LLVM maps it to what
the processor has, with the same bits as NumPy.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, types
from numba.core import cgutils
from numba.np import arrayobj

intrinsic: Any = extending.intrinsic
_make_array: Any = arrayobj.make_array
_allocate: Any = cgutils.alloca_once

_LANES = 8
_BITS = 16
_INT32 = ir.IntType(32)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Pointer to an element of a contiguous array, counted flat."""
    return builder.gep(_make_array(array_type)(context, builder, array).data, [index])


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

        lanes = _allocate(builder, wide)
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
