"""Jobs: what a TOML file describes, planned, run and resumed. The only home of distributed.Client."""
