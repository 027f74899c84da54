import bigembed as be
from bigembed import datasets, plotting
from bigembed.datasets.closed_forms import US_CITIES

distances, truth = datasets.dataset("us_cities").draw()
east, north = be.ClassicalMDS(n_components=2, metric="precomputed").fit(distances).embedding_.T
east, north = (axis if axis @ truth[name] > 0 else -axis for axis, name in ((east, "longitude"), (north, "latitude")))
title = "Cities from their distances alone"
plotting.named("cities.png", east, north, list(US_CITIES), title=title)
