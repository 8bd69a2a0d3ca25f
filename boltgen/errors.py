"""The one tree of errors. A message says what failed, on what, why, and what to do."""

from __future__ import annotations

from typing import NoReturn


class BoltgenError(Exception):
    """Base of every error that boltgen raises on purpose."""


class InvalidProblemError(BoltgenError):
    """A problem, epilogue or config whose numbers do not fit together."""


class UnknownArchError(BoltgenError):
    """An architecture that the table does not have."""


class ModelImportError(BoltgenError):
    """A model that cannot be read or imported."""


class GraphError(BoltgenError):
    """A graph that breaks a rule of the IR: an internal error, which names operator and rule."""


class InterpretError(BoltgenError):
    """A graph that the NumPy interpreter cannot compute: an unknown operator, or a wrong type."""


class GraphTextError(BoltgenError):
    """A text that is no graph, or a graph that has no text; the message names line or operator."""


class NoLegalConfigError(BoltgenError):
    """No kernel configuration is legal for a problem."""


class ToolchainError(BoltgenError):
    """A compiler, header or library that is missing, too old or broken."""


class CompileError(BoltgenError):
    """A compiler that ran and failed; the message has its first error, command, source and log."""


class AuditError(BoltgenError):
    """A kernel whose machine code must not ship, as ptxas reports, and that has no replacement."""


class CacheError(BoltgenError):
    """A cache folder that cannot be used safely."""


class LibraryError(BoltgenError):
    """A kernel library, or its archive, that cannot be read, written or trusted."""


class CheckError(BoltgenError):
    """A library that failed its execution before shipping."""


class ArtifactError(BoltgenError):
    """A compiled model's folder that is missing, incomplete or of another version."""


class KernelContentError(BoltgenError):
    """A compiled kernel whose PTX cannot be found or read."""


class InputError(BoltgenError):
    """Inputs of a run whose names, shapes or dtypes are not what the model takes."""


class RecordError(BoltgenError):
    """A measurement's JSON that is not one; the message names file, line and field."""


class DatabaseError(BoltgenError):
    """A database of measurements that cannot be used: locked, read-only, damaged, too new."""


class TuningError(BoltgenError):
    """A tuning session that cannot start or go on."""


class DeviceError(BoltgenError):
    """A device that is not there, or that cannot run what it was given."""


class VgpuError(DeviceError):
    """A fault that the virtual GPU found, with kernel, block and thread."""


class ServingError(BoltgenError):
    """A server that cannot start or go on; its subclasses are answers to a client."""


class UnknownModelError(ServingError):
    """A request for a model, or a version of one, that the server does not have."""


class NotReadyError(ServingError):
    """A request to a model that is being loaded, has failed, or is going away."""


class BusyError(ServingError):
    """A request to a model whose queue is full."""


class DeadlineError(ServingError):
    """A request whose time was over before it could run."""


class TooLargeError(ServingError):
    """A request with a larger body than the server takes."""


def assert_never(value: NoReturn) -> NoReturn:
    """End a `match` that has a case for everything; a value that it has none for is named.

    The standard library has it from Python 3.11 on.
    """
    raise AssertionError(f"no case for {value!r}, of type {type(value).__name__}")
