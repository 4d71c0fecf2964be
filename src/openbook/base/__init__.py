"""What every room uses and knows no other room: errors, randomness, console, files, intervals, the pool of jobs."""
