import warnings

import numpy as np
from matplotlib.figure import Figure

import bigembed as be
from bigembed import datasets
from bigembed.errors import BigembedWarning

warnings.simplefilter("ignore", BigembedWarning)
rows, truth = datasets.dataset("digits", classes=10).draw()
spread = rows.std(axis=0)
graph = be.build_neighbor_graph((rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1))
figure = Figure(figsize=(10, 3.4), layout="constrained")
for axis, bandwidth in zip(figure.subplots(1, 3), ("fixed", "self-tuned", "adaptive")):
    dm = be.DiffusionMap(2, bandwidth=bandwidth, components="largest").fit(graph)
    axis.scatter(*dm.embedding_.T, c=truth["label"], cmap="tab10", s=4)
    carried = dm.certificate_["judgement"]["rows_above_a_tenth"]
    axis.set(title=bandwidth, xlabel=f"carried by {carried[0]} rows", ylabel=f"carried by {carried[1]} rows")
    axis.set(xticks=[], yticks=[])
figure.savefig("choosing_bandwidth.png", dpi=130)
