from torch.nn.functional import linear

__all__ = ["linear"]
