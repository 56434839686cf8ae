Tensors = dict
