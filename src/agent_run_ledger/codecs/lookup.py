"""Finds the stored form of a type or a tag; families of third-party libraries are loaded when those are in use."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import CoroutineType
from typing import Final, cast

from agent_run_ledger.codecs import rescued
from agent_run_ledger.codecs.forms import Form
from agent_run_ledger.codecs.refusal import CODEC_HINT, type_name
from agent_run_ledger.codecs.registry import CODEC, is_registered
from agent_run_ledger.errors import ClassGone

_LIBRARIES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "pydantic": ("pydantic_models", ("pydantic", "pydantic-url")),
    "numpy": ("numpy_arrays", ("ndarray", "npscalar")),
    "pandas": ("pandas_frames", ("series", "dataframe", "pdindex", "pdarray", "pdscalar")),
}
"""Third-party library → our module for it and the tags that module reads."""

_LIBRARY_OF_TAG: Final = {tag: library for library, (_, tags) in _LIBRARIES.items() for tag in tags}
_TAGS_WITHOUT_FAMILY: Final = {CODEC.tag: CODEC, **{form.tag: form for form in rescued.FORMS}}
_COROUTINE_HINT: Final = "the step returned a coroutine: make the function that wraps it async, or await it"
_BUILTINS: Final = (dict, list, tuple, set, frozenset, str, int, float, bytes)


def form_of(kind: type) -> Form | None:
    """Return how values of exactly this type are stored, or None when they are not."""
    if is_registered(kind):
        return CODEC
    from agent_run_ledger.codecs import families  # with the first value that plain JSON does not cover

    form = families.EXACT.get(kind)
    if form is not None:
        return form
    for library, (module, _) in _LIBRARIES.items():
        if library in sys.modules:
            for owns, library_form in _families(module):
                if owns(kind):
                    return library_form
    for owns, family_form in families.CLASS_FAMILIES:
        if owns(kind):
            return family_form
    return None


def form_by_tag(tag: object) -> Form:
    """Return the form with this tag; raise ClassGone where this version or this installation has none."""
    from agent_run_ledger.codecs import families

    if type(tag) is str:
        form = _TAGS_WITHOUT_FAMILY.get(tag) or families.TAGS.get(tag)
        if form is not None:
            return form
        if tag in _LIBRARY_OF_TAG:
            return _library_form(tag)
    message = f"a stored value has the tag {tag!r}, which this version does not know"
    hint = "use the version of agent-run-ledger that wrote it, or a later one"
    raise ClassGone(message, code="unknown_tag", hint=hint)


def why_not(kind: type) -> tuple[str, str]:
    """Return (reason, hint) for a type that has no stored form."""
    name = type_name(kind)
    if issubclass(kind, CoroutineType):
        return f"a {name} has no stored form", _COROUTINE_HINT
    for builtin in _BUILTINS:
        if issubclass(kind, builtin):
            return f"{name}, a subclass of {builtin.__name__}, has no exact stored form", CODEC_HINT
    return f"{name} has no stored form", CODEC_HINT


def _library_form(tag: str) -> Form:
    library = _LIBRARY_OF_TAG[tag]
    try:
        import_module(library)
    except ImportError as error:
        message = f"a stored value needs {library}, which cannot be imported: {error}"
        raise ClassGone(message, hint=f"install {library}") from error
    for _, form in _families(_LIBRARIES[library][0]):
        if form.tag == tag:
            return form
    raise ClassGone(f"a stored value needs another version of {library}: the tag {tag!r} has no reader here")


def _families(module: str) -> tuple[tuple[Callable[[type], bool], Form], ...]:
    """Return the forms of one library; none where a stand-in or an old version of it is loaded."""
    try:
        return _load_families(module)
    except (ImportError, AttributeError):
        return ()


@cache
def _load_families(module: str) -> tuple[tuple[Callable[[type], bool], Form], ...]:
    loaded = import_module(f"agent_run_ledger.codecs.families.{module}")
    return cast("tuple[tuple[Callable[[type], bool], Form], ...]", loaded.FAMILIES)
