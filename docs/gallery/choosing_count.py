import warnings

import numpy as np
from matplotlib.figure import Figure

import bigembed as be
from bigembed.errors import BigembedWarning

warnings.simplefilter("ignore", BigembedWarning)
rows = np.random.default_rng(0).uniform(size=(3_000, 2)) * [2.5, 1]
dm = be.DiffusionMap(6).fit(rows)
again = dm.certificate_["judgement"]["harmonic"]
figure = Figure(figsize=(10, 3.4), layout="constrained")
for axis, l in zip(figure.subplots(1, 3), (1, 2, 3)):
    axis.scatter(dm.embedding_[:, 0], dm.embedding_[:, l], c=rows[:, 1], s=4)
    title = "a function of earlier ones" if again[l] else "new"
    axis.set(title=title, xlabel="coordinate 1", ylabel=f"coordinate {l + 1}", xticks=[], yticks=[])
figure.savefig("choosing_count.png", dpi=130)
