"""The mathematical stand-in for a transformer: its model, its learners, the sample gap, the quality of gradients."""
