"""Bytes that are shown nowhere: in no repr, no error, no dump of local variables."""

from __future__ import annotations

from typing import Final, NoReturn


class Secret:
    """Holds a passphrase or a private key. Only `reveal` gives it away; the memory of the process still has it."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value: Final = value

    def reveal(self) -> bytes:
        """Return the bytes. Give them to no name: a dump of local variables would show it."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied."""
        raise TypeError("a secret does not travel")
