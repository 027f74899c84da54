"""What is published under a name: the manifests of stages, the root of a run or a model, what is superseded."""
