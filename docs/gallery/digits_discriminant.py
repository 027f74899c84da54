import bigembed as be
from bigembed import datasets, plotting

rows, truth = datasets.dataset("digits", classes=5).draw()
lda = be.LinearDiscriminantAnalysis(n_components=2, shrinkage=0.1).fit(rows, truth["label"])
title = "The same by discriminants"
plotting.scatter("digits_discriminant.png", lda.embedding_, labels=truth["label"], title=title)
