"""What can be said of a trace, or of a model, beyond its tensors."""
