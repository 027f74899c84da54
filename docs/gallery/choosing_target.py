import warnings

import numpy as np
from matplotlib.figure import Figure

import bigembed as be
from bigembed.errors import BigembedWarning

warnings.simplefilter("ignore", BigembedWarning)
rng = np.random.default_rng(0)
angle = rng.uniform(-np.pi, np.pi, 8_000)
angle = angle[rng.uniform(0, 1.9, len(angle)) < 1 + 0.9 * np.cos(angle)]  # 19 rows on the right for one on the left
graph = be.build_neighbor_graph(np.column_stack([np.cos(angle), np.sin(angle)]), 30)
figure = Figure(figsize=(10, 2.9), layout="constrained")
for axis, target in zip(figure.subplots(1, 4), (None, "laplace-beltrami", "fokker-planck", "random-walk")):
    dm = be.DiffusionMap(2, target=target, t=0).fit(graph)
    shown = np.argsort(angle)[::20]
    axis.scatter(*dm.embedding_[shown].T, c=angle[shown], cmap="twilight", s=6)
    axis.set(title=target or "no target", xlabel="coordinate 1", ylabel="coordinate 2", xticks=[], yticks=[])
    axis.set_aspect("equal", "datalim")
figure.savefig("choosing_target.png", dpi=130)
