"""Tokenizers as they lie in model folders, each built into one of Hugging Face's `tokenizers`."""
