"""A store that grows: its versions, what was placed by which model, and whether the model still fits."""
