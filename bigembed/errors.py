"""Every exception and warning of bigembed; what errors say of unknown names, and of libraries that are missing."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

# ---------------------------------------------------------------------------------------------------------- errors
# Every exception and warning of bigembed.
#
# An error says what was wrong, what was got, what is allowed and what to do. Each subclasses :class:`BigembedError`
# and the builtin that a caller would expect, and survives pickling. Those that scikit-learn has a class for are that
# class, too.


class BigembedError(Exception):
    """The base class of every error that is raised on purpose."""


class InputError(BigembedError, ValueError):
    """The rows, the graph or a parameter cannot be used (exit status 2)."""


class InputTypeError(BigembedError, TypeError):
    """The object given is of a kind that cannot be read as rows or as a graph (exit status 2)."""


class MissingPathError(BigembedError, FileNotFoundError):
    """A path that should be read does not exist (exit status 2)."""


class MissingExtraError(InputError, ImportError):
    """A library is not installed that only some users need; the extra that brings it is named (exit status 2)."""


class ExistingOutputError(BigembedError, FileExistsError):
    """An output exists and holds something else (exit status 2)."""


class JobError(BigembedError, ValueError):
    """A job file or a command line cannot be understood (exit status 2)."""


class WorkerAccessError(BigembedError, OSError):
    """A worker cannot read or write the store (exit status 2)."""


class PlanError(BigembedError, MemoryError):
    """The job cannot fit in the memory or on the disk that it is given (exit status 3)."""


class FullDiskError(BigembedError, OSError):
    """A disk took no more while a job wrote; with room made, the same command goes on (exit status 1)."""


class ClusterError(BigembedError, RuntimeError):
    """The cluster cannot do the work: no workers, or tasks that kill every worker (exit status 1)."""


class LockedError(BigembedError, RuntimeError):
    """Another run holds the output (exit status 4)."""


class InterruptedRun(BigembedError, RuntimeError):
    """The run was stopped and can be resumed by the same command (exit status 5)."""


class StalledRun(InterruptedRun):
    """The run was stopped several times without having come any further (exit status 8)."""


class StoreAccessError(BigembedError, PermissionError):
    """An object store refuses the credentials that the process finds in its environment (exit status 2)."""


class UnreachableError(BigembedError, ConnectionError):
    """An object store did not answer for minutes; the same command goes on (exit status 5)."""


class UndeclaredInputError(BigembedError, LookupError):
    """A stage opened another one that it does not declare as an input: a fault of a method (exit status 1)."""


class DamagedError(BigembedError, OSError):
    """Stored bytes are not those that were published (exit status 6)."""


class ChangedInputError(InputError):
    """Rows that were fitted or placed before have other bytes now, or are gone."""


class MovedError(BigembedError, RuntimeError):
    """The rows of a refreshed map moved farther than its limits, so that somebody has to decide (exit status 9)."""


class StaleError(InputError):
    """What was asked for belongs to parameters or inputs that its run no longer has (exit status 2)."""


class DroppedError(InputError):
    """What was asked for was deleted when no stage was left to read it, as ``keep="map"`` has it (exit status 2)."""


class DisconnectedGraphError(InputError):
    """The neighbor graph has several components and the policy is ``"error"``."""


class KernelSignError(InputError):
    """The linearized kernel takes negative values: a scale ε is below the largest squared distance."""


class OutOfReachError(InputError):
    """New rows are so far from those fitted that their row of the linearized kernel has no positive sum."""


class BigembedWarning(UserWarning):
    """The base class of every warning."""


class RecallWarning(BigembedWarning):
    """The measured recall of the neighbor graph is below the target."""


class ComponentsWarning(BigembedWarning):
    """A graph of several components was reduced or bridged."""


class LocalizedWarning(BigembedWarning):
    """A coordinate is carried by a handful of rows, or rows are all but cut off from the others."""


class SeparationWarning(BigembedWarning):
    """Coordinates are not determined: turned among themselves, or not found again with half of the neighbors."""


class HarmonicWarning(BigembedWarning):
    """Coordinates are functions of earlier ones, and show little that is new."""


class MapWarning(BigembedWarning):
    """The map as a whole is doubtful: neighbors are not kept, or one or two columns decide all distances."""


class ClustersWarning(BigembedWarning):
    """Clusters after a map are doubtful: not found again in subsets of the rows, few, or mostly noise."""


class DegenerateWarning(BigembedWarning):
    """A rule met a degenerate case, for example 0/0 in the choice of t."""


class FeatureNamesWarning(BigembedWarning):
    """Names of columns or rows are missing, so that their order is not checked or some rows have no value.

    Or what stands in a table may be read in two ways: a word such as NA as text, a point between thousands as one
    before decimals.
    """


class DamageWarning(BigembedWarning):
    """Stored files of a run are not those that were published; what they belong to is made anew."""


class StaleWarning(BigembedWarning):
    """The run that wrote a model has begun anew with other parameters or rows, and not ended yet."""


class OpenClusterWarning(BigembedWarning):
    """The connection to a cluster on another host is not encrypted: anyone who can reach it can execute code on it."""


_SHARED = {
    "NotFittedError": (BigembedError, "A result was asked of an estimator before ``fit`` (exit status 1)."),
    "ConvergenceWarning": (
        BigembedWarning,
        "The eigensolver stopped before its tolerance; the certificate says how far it came.",
    ),
    "DataConversionWarning": (BigembedWarning, "Something was given in a form that had to be converted."),
}
"""Classes that scikit-learn has as well, by name: base and docstring."""

_command = False
"""Whether this process runs a command of bigembed, in which no other code catches these classes by scikit-learn's."""


def leave_out_scikit_learn() -> None:
    """From now on, do not import scikit-learn for the classes that it has as well.

    A command calls it: the import takes 100 MiB and a second, for one warning.
    """
    global _command
    _command = True


def uses_scikit_learn() -> bool:
    """Return whether scikit-learn is imported, or will be for the classes that it has as well."""
    return not _command or "sklearn" in sys.modules


def _of_scikit_learn(name: str) -> tuple[type, ...]:
    if not uses_scikit_learn():
        return ()
    from sklearn import exceptions

    return (getattr(exceptions, name),)


if TYPE_CHECKING:
    NotFittedError: type[BigembedError]
    ConvergenceWarning: type[BigembedWarning]
    DataConversionWarning: type[BigembedWarning]
else:

    def __getattr__(name: str) -> type:
        """A class that subclasses scikit-learn's, except in a command; made when it is first asked for."""
        if name not in _SHARED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        base, text = _SHARED[name]
        bases = (base, *_of_scikit_learn(name))
        return globals().setdefault(name, type(name, bases, {"__doc__": text, "__module__": __name__}))

    def __dir__() -> list[str]:
        return sorted({*globals(), *_SHARED})


# ----------------------------------------------------------------------------------------------------------- names
# The known name that somebody meant who gave one that is not known.

MANY = 20_000
"""Known names beyond which none is looked for: each is compared letter by letter."""


def nearest(given: Any, known: Iterable[str]) -> str | None:
    """Return the known name that is most like the given one; None if none is much like it.

    >>> nearest("isomop", ["isomap", "pca"]), nearest("x", ["isomap"])
    ('isomap', None)
    """
    names = list(known)
    return None if len(names) > MANY else next(iter(get_close_matches(str(given), names, 1, 0.5)), None)


def meant(given: Any, known: Iterable[str]) -> str:
    """Return a question to put after an unknown name; nothing if no known one is much like it.

    >>> meant("isomop", ["isomap"]), meant("x", ["isomap"])
    (" (did you mean 'isomap'?)", '')
    """
    found = nearest(given, known)
    return "" if found is None else f" (did you mean {found!r}?)"


# ---------------------------------------------------------------------------------------------------------- extras
# Libraries that only some users need: imported where they are used, and named with their extra where absent.


def needed(module: str, extra: str, what: str) -> Any:
    """The module; :class:`MissingExtraError`, which names the extra, if it is not installed.

    >>> needed("json", "none", "reading JSON").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{what} needs {module.partition('.')[0]}, which the extra {extra!r} installs: "
            f'pip install "bigembed[{extra}]"'
        ) from error
