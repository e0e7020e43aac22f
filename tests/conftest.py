"""What all tests share."""

import torch

torch.set_num_threads(1)  # the tests' tensors are small; two threads would only wait for each other
