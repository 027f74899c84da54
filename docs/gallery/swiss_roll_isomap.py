import bigembed as be
from bigembed import datasets, plotting

rows, truth = datasets.dataset("swiss_roll", n=4_000).draw()
isomap = be.Isomap(n_components=2, n_neighbors=15, solver="landmarks", n_landmarks=200).fit(rows)
title = "Isomap by 200 landmarks"
plotting.scatter("swiss_roll_isomap.png", isomap.embedding_, color=truth["arc_length"], title=title)
