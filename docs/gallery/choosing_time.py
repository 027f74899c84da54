import warnings

import numpy as np
from matplotlib.figure import Figure

import bigembed as be
from bigembed import datasets
from bigembed.errors import BigembedWarning

warnings.simplefilter("ignore", BigembedWarning)
rows = datasets.dataset("digits", classes=10).rows()
values = be.DiffusionMap(10).fit(rows).eigenvalues_
figure = Figure(figsize=(6, 3.4), layout="constrained")
axis = figure.subplots()
for t in (1, 20, 100):
    axis.plot(np.arange(1, 11), (values / values[0]) ** t, "o-", label=f"t = {t}")
axis.axhline(0.2, color="gray", linestyle="--")
axis.annotate("δ = 0.2", (8.8, 0.22), color="gray")
axis.set(xlabel="coordinate", ylabel="(λ / λ₁)ᵗ")
axis.legend()
figure.savefig("choosing_time.png", dpi=130)
