import bigembed as be
from bigembed import datasets, plotting

rows, truth = datasets.dataset("pacman", n=200).draw()
dm = be.DiffusionMap(n_components=2, n_neighbors=10).fit(rows)
title = "A picture turned about its center"
plotting.scatter("pacman.png", dm.embedding_, color=truth["angle"], title=title)
