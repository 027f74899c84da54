"""Pictures: maps of any number of points, spectra, bandwidth curves. Matplotlib without global state.

Points are drawn one by one up to 20 000; above, they are counted on a grid block by block, so the
memory is that of one block and the grid.
"""

from bigembed.plotting.curves import bandwidth, spectrum
from bigembed.plotting.maps import scatter
from bigembed.plotting.names import named

__all__ = ["bandwidth", "named", "scatter", "spectrum"]
