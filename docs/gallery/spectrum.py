import bigembed as be
from bigembed import datasets, plotting

rows = datasets.dataset("circle", n=3_000).rows()
dm = be.DiffusionMap(n_components=10, n_neighbors=15).fit(rows)
title = "Circle: eigenvalues come in pairs"
plotting.spectrum("spectrum.png", dm.eigenvalues_, dm.residuals_, title=title)
