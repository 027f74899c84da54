import bigembed as be
from bigembed import datasets, plotting

rows, truth = datasets.dataset("digits", classes=5).draw()
dm = be.DiffusionMap(n_components=3, n_neighbors=10).fit(rows)
title = "Handwritten digits 0 to 4"
plotting.scatter("digits.png", dm.embedding_, labels=truth["label"], title=title)
