"""PaCMAP: near, mid-near and further pairs of rows, and a descent in three phases."""
