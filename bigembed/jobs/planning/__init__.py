"""What a job will read, hold and write, and how long it will take, before it starts."""
