import warnings

from matplotlib.figure import Figure

import bigembed as be
from bigembed import datasets
from bigembed.errors import BigembedWarning

warnings.simplefilter("ignore", BigembedWarning)
rows, truth = datasets.dataset("swiss_roll", n=1_500, noise=0.4).draw()
figure = Figure(figsize=(10, 3.4), layout="constrained")
for axis, k in zip(figure.subplots(1, 3), (3, 12, 80)):
    dm = be.DiffusionMap(2, n_neighbors=k).fit(rows)
    axis.scatter(*dm.embedding_.T, c=truth["arc_length"], s=4)
    axis.set(title=f"k = {k}", xlabel="coordinate 1", ylabel="coordinate 2", xticks=[], yticks=[])
figure.savefig("choosing_neighbors.png", dpi=130)
