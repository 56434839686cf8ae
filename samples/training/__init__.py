"""How the sample models were made: text, tokenizer, training, figures. See README.md."""
