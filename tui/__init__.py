"""The terminal app. It talks to the engine through a pipe and never imports torch."""
