"""What a running job says of itself, and what stops it: console, logs, status, metrics, measured memory."""
