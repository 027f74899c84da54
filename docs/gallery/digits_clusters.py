import bigembed as be
from bigembed import datasets, plotting

rows, truth = datasets.dataset("digits", classes=5).draw()
graph = be.build_neighbor_graph(rows, n_neighbors=15)
eigenmap = be.LaplacianEigenmaps(n_components=3).fit(graph)
clusters = be.SpectralClustering(n_clusters=5).fit(graph)
title = "Five clusters of digits"
plotting.scatter("digits_clusters.png", eigenmap.embedding_, labels=clusters.labels_, title=title)
