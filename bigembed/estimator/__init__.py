"""What every estimator shares: the base class, fitting, new rows, saving, the certificate."""

AROUND = ("workdir", "verbose", "callbacks")
"""Parameters of every method that say where a fit keeps its stages and what it reports, and change no result."""
