"""Pictures: maps of any number of points, spectra, bandwidth curves. Matplotlib without global state.

Points are drawn on a grid block by block, up to 250 000 as discs, above as counts, so the memory is that of one block
and the grid.
"""

from bigembed.plotting.canvas import bandwidth, spectrum
from bigembed.plotting.maps import named, scatter, thumbnails

__all__ = ["bandwidth", "named", "scatter", "spectrum", "thumbnails"]
