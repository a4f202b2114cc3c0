"""Turn the bytes of a Python file into text the way Python itself does."""

from __future__ import annotations

import io
import tokenize


class Undecodable(ValueError):
    """The bytes are not text in the encoding that the file declares (UTF-8 without a declaration)."""


def decode_source(content: bytes) -> str:
    """Return the text with newlines as `\\n`, by byte order mark and coding line (PEP 263); Undecodable otherwise."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise Undecodable(_reason(error)) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not {error.encoding}"
    if isinstance(error, LookupError) or "unknown encoding" in str(error):
        return "its coding line names no encoding that Python reads"
    return "it is not UTF-8 and declares no other encoding"
