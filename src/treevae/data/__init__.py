"""What goes in: arrays, files, the demo's pictures, and the data sets of the paper by name."""

from .dataset import DataSet
from .refusal import DataFileError
from .sets import load

__all__ = ["DataFileError", "DataSet", "load"]
