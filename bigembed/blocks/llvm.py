"""What functions written in LLVM's own instructions take from numba and llvmlite, which declare no types.

Importing this imports numba.
"""

from __future__ import annotations

from typing import Any

from numba import extending
from numba.core import cgutils
from numba.np import arrayobj

intrinsic: Any = extending.intrinsic
make_array: Any = arrayobj.make_array
allocate: Any = cgutils.alloca_once
declared: Any = cgutils.get_or_insert_function
