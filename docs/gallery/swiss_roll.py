import bigembed as be
from bigembed import datasets, plotting

rows, truth = datasets.dataset("swiss_roll", n=4_000).draw()
dm = be.DiffusionMap(n_components=4, n_neighbors=15).fit(rows)
title = "Diffusion map of a swiss roll"
plotting.scatter("swiss_roll.png", dm.embedding_, color=truth["arc_length"], title=title)
