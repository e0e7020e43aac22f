"""Every error of treevae's own, to be caught by name: ``except treevae.errors.DivergedError``.

Each is also an error of Python's that says what kind it is, so that ``except ValueError`` hears the most of them. What
is wrong with a parameter, or with X, is a plain ValueError or TypeError, as everywhere in scikit-learn; a model that is
asked before it is fitted raises scikit-learn's NotFittedError; and what a device has no room for is a MemoryError. All
messages say what to do.
"""

__all__ = [
    "ChangedRunError",
    "DamagedRecordError",
    "DataFileError",
    "DivergedError",
    "ModelFileError",
    "NoTreeError",
    "OneGroupError",
    "RunLockedError",
]


class DataFileError(ValueError):
    """A file or folder does not hold samples that can be read, or a data set is not where it was looked for."""


class DivergedError(FloatingPointError):
    """A term of the loss stopped being finite. The message says where, and what to look at."""


class NoTreeError(RuntimeError):
    """A callback ended a fit before it had a tree, so that there is no model to keep."""


class OneGroupError(ValueError):
    """A guide has all samples in one group, so that there is no tree to begin with."""


class ModelFileError(ValueError):
    """A file is not a model, or the state of a run, that this version can read."""


class ChangedRunError(ValueError):
    """A run cannot go on, because its parameters or data are not those it was started with."""


class RunLockedError(OSError):
    """Another process works in the run's folder, or this one does already."""


class DamagedRecordError(ValueError):
    """A record of the paper's tables cannot be read, or is not of the cell whose name it has."""
