"""Where block tasks run: in this process, on an embedded cluster, on a running one, on one that Slurm queues."""
