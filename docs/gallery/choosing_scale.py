import warnings

from matplotlib.figure import Figure

import bigembed as be
from bigembed import datasets
from bigembed.errors import BigembedWarning

warnings.simplefilter("ignore", BigembedWarning)
rows, truth = datasets.dataset("spiral", n=600, turns=2.0).draw()
advice = be.DiffusionMap(1, n_neighbors=None).fit(rows).epsilon_
figure = Figure(figsize=(10, 2.9), layout="constrained")
for axis, times in zip(figure.subplots(1, 4), (1e-4, 1 / 30, 1, 30)):
    dm = be.DiffusionMap(2, n_neighbors=None, epsilon=times * advice, components="largest").fit(rows)
    axis.scatter(*dm.embedding_.T, c=truth[next(iter(truth))], s=4)
    axis.set(title=f"ε = {times * advice:.2g}", xlabel="coordinate 1", ylabel="coordinate 2", xticks=[], yticks=[])
figure.savefig("choosing_scale.png", dpi=130)
