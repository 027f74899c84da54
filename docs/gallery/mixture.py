import bigembed as be
from bigembed import datasets, plotting

rows, truth = datasets.dataset("mixture", n=300_000, d=32, n_clusters=20, separation=4.0).draw()
pca = be.PCA(n_components=2).fit(rows)
title = "PCA of 300 000 rows in 20 clusters"
plotting.scatter("mixture.png", pca.embedding_, labels=truth["label"], title=title)
