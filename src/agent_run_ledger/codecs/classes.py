"""Names classes so that a later process finds the same one, and finds them without running what stored bytes name."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Final, cast

from agent_run_ledger.codecs.refusal import Refusal, type_name, written_name
from agent_run_ledger.errors import ClassGone

_LOCAL_HINT: Final = "define the class at the top level of a module"


def class_path(kind: type) -> str:
    """Return "module:qualname"; raise Refusal unless that name leads back to this very class."""
    path = written_name(f"{kind.__module__}:{kind.__qualname__}", kind)
    if "<locals>" in path:
        raise Refusal(f"the class {type_name(kind)} is local to a function", kind=kind, hint=_LOCAL_HINT)
    try:
        found = resolve(path)
    except ClassGone as gone:
        reason = f"the class {type_name(kind)} is not found under its own name"
        raise Refusal(reason, kind=kind, hint=_LOCAL_HINT) from gone
    if found is not kind:
        reason = f"the name of the class {type_name(kind)} now leads to another class"
        raise Refusal(reason, kind=kind, hint="it was defined twice; make a new value")
    return path


def resolve(path: str) -> type:
    """Return the class that "module:qualname" names.

    A module is imported only below a package that this program has loaded already, and never a `__main__` of one.
    The name is looked up in namespaces, so no `__getattr__` runs. Raises ClassGone.
    """
    module_name, _, qualname = path.partition(":")
    found: object = _module(module_name, path)
    for part in qualname.split("."):
        if not isinstance(found, (ModuleType, type)) or part not in vars(found):
            raise gone(path, "it is not there any more")
        found = vars(found)[part]
    if not issubclass(type(found), type):
        raise gone(path, "the name is no class any more")
    return cast("type", found)


def gone(path: str, reason: str, *, code: str = "class_gone") -> ClassGone:
    """Return the error for a class that this program cannot give back as it was."""
    hint = "bring the class back as it was, or register_codec() before values are recorded; nothing was run again"
    return ClassGone(f"a stored value needs the class {path}: {reason}", code=code, hint=hint)


def _module(name: str, path: str) -> ModuleType:
    module = sys.modules.get(name)
    if module is None:
        if name.partition(".")[0] not in sys.modules or name.endswith(".__main__"):
            raise gone(path, "its package is not loaded")
        try:
            module = import_module(name)
        except (Exception, SystemExit) as error:
            raise gone(path, f"its module cannot be imported: {error}") from error
    return module
