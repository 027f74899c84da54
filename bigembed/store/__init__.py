"""The store: arrays, the exchange between blocks, published stages, fitted models. The only home of zarr."""
