"""What goes in: files and folders, and the data sets of the paper by name."""

from .dataset import DataSet
from .files import read
from .samples import Table
from .sets import load

__all__ = ["DataSet", "Table", "load", "read"]
