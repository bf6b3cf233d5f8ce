"""Bytes to text: UTF-8 strictly, then byte-order marks, then a detector whose confidence is recorded.

No byte is ever guessed in silence: what no decoder is sure of is left out with the reason.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from adaptive_sampling.corpus._extras import require

MIN_CONFIDENCE = 0.9
_SAMPLE_BYTES = 1 << 18  # what the detector looks at; the rest must then decode strictly
# Fewer non-ASCII bytes than this are too little evidence to tell one code page from another.
_ENOUGH_EVIDENCE = 6
# Longest first: the mark of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class Decoded:
    """Text of a document and how it was found.

    Attributes:
        text: The text without byte-order mark; "" where there is a reason.
        encoding: Codec that decoded it, as "utf-8"; "" if none did.
        confidence: 1.0 for UTF-8 and byte-order marks, else the detector's share of clean text, in [0, 1], lowered
            where there are few non-ASCII bytes to judge by.
        reason: Why the document is left out, "" if it is not.
    """

    text: str
    encoding: str
    confidence: float
    reason: str = ""


def decode(raw: bytes, *, min_confidence: float = MIN_CONFIDENCE) -> Decoded:
    """Decode one document.

    Args:
        raw: All its bytes.
        min_confidence: What is less sure is left out.

    Returns:
        Text or reason; never an exception for bytes of any kind.

    Raises:
        MissingExtraError: if a detector is needed and charset-normalizer is not installed.

    Cost: linear; the detector looks at the first 256 kB.

    Example:
        >>> decode("été".encode())
        Decoded(text='été', encoding='utf-8', confidence=1.0, reason='')
    """
    try:
        if raw.startswith(codecs.BOM_UTF8):
            return _checked(raw[3:].decode("utf-8"), "utf-8-sig", 1.0)
        return _checked(raw.decode("utf-8"), "utf-8", 1.0)
    except UnicodeDecodeError as error:
        shift = 3 if raw.startswith(codecs.BOM_UTF8) else 0
        fault = f"byte 0x{error.object[error.start]:02x} at offset {error.start + shift} is not UTF-8"
    for mark, encoding in _MARKS:
        if raw.startswith(mark):
            try:
                return _checked(raw.decode(encoding), encoding, 1.0)
            except UnicodeDecodeError as error:
                return Decoded("", "", 0.0, f"broken {encoding} behind its byte-order mark at offset {error.start}")
    return _detected(raw, fault, min_confidence)


def _detected(raw: bytes, fault: str, min_confidence: float) -> Decoded:
    detector = require("charset_normalizer", "to read text that is not UTF-8")
    best = detector.from_bytes(raw[:_SAMPLE_BYTES]).best()
    if best is None:
        return Decoded("", "", 0.0, f"{fault}, and no other encoding fits")
    evidence = len(raw) - sum(map(raw.count, map(_single, range(128))))
    confidence = round((1.0 - float(best.chaos)) * min(1.0, evidence / _ENOUGH_EVIDENCE), 3)
    if confidence < min_confidence:
        return Decoded(
            "",
            "",
            confidence,
            f"{fault}, and {best.encoding} is only {confidence:.2f} sure, below {min_confidence:.2f}",
        )
    try:
        return _checked(raw.decode(best.encoding), str(best.encoding), confidence)
    except UnicodeDecodeError as error:
        return Decoded("", "", confidence, f"{fault}, and not {best.encoding} at offset {error.start}")


def _single(byte: int) -> bytes:
    return bytes((byte,))


def _checked(text: str, encoding: str, confidence: float) -> Decoded:
    text = text.removeprefix("\ufeff")
    return Decoded(text, encoding, confidence, fault_of_text(text))


def fault_of_text(text: str) -> str:
    """Reason to leave out a decoded text, "" if there is none: empty, NUL characters, lone surrogates."""
    if not text.strip():
        return "empty"
    if "\0" in text:
        return f"{text.count(chr(0))} NUL characters, the first at {text.index(chr(0))}"
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            return f"lone surrogate at character {error.start}"
    return ""
