"""What methods on a neighbor graph share: its components, the order of its rows, new rows."""
