"""Cleaning of prose, each step asked for by name, per source, and recorded; code is never cleaned."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from numbers import Real
from typing import Any

CLEANING_VERSION = 1
_CODE = (
    ".ac .am .asm .bash .bat .c .cc .cfg .clj .cmake .cmd .cpp .cs .css .cu .cuh .cxx .dart .el .erl .ex .exs .f90 .fs "
    ".go .gradle .groovy .h .hh .hpp .hrl .hs .html .hxx .ini .ipynb .java .jl .js .json .jsx .kt .kts .less .lua .m "
    ".m4 .mak .mjs .mk .ml .mli .mm .nim .pas .php .pl .pm .proto .ps1 .pxd .pxi .py .pyi .pyx .r .rb .rs .sass .scala "
    ".scss .sh .sql .svelte .swift .tf .toml .ts .tsx .vb .vue .xml .yaml .yml .zig .zsh"
)
_CODE_SUFFIXES = frozenset(_CODE.split())
_NAMES = (
    "build.bazel cmakelists.txt containerfile dockerfile gemfile gnumakefile jenkinsfile justfile makefile meson.build "
    "procfile rakefile sconscript sconstruct vagrantfile"
)
_CODE_NAMES = frozenset(_NAMES.split())
_PACKED = (".gz", ".zst")
# "\r\n" is one line end: a pattern that could take it for two would see a blank line in it.
_EOL = r"(?:\r\n|\r(?!\n)|\n)"
_LINE_END = re.compile(_EOL)
_START = r"[ \t]*\*\*\*[ \t]*START OF TH(?:E|IS) PROJECT GUTENBERG[^\r\n]*(?:EOL[^\r\n]+){0,2}?\*\*\*[ \t]*"
_END = r"[ \t]*\*\*\*[ \t]*END OF TH(?:E|IS) PROJECT GUTENBERG"


@dataclass(frozen=True)
class _Patterns:
    """Start and end line of a Gutenberg text; breaks of paragraphs and what each of them becomes."""

    start: re.Pattern[str]
    end: re.Pattern[str]
    breaks: re.Pattern[str]
    one_break: str


# Where "\n" is the only line end, patterns that know no other are several times faster.
_NEWLINES = _Patterns(
    re.compile(f"^{_START.replace('EOL', chr(10))}$", re.I | re.M),
    re.compile(f"^{_END}", re.I | re.M),
    re.compile(r"\n(?:[ \t]*\n){2,}|\n[ \t]+\n"),
    "\n\n",
)
_ALL_ENDS = _Patterns(
    re.compile(f"(?<![^\r\n]){_START.replace('EOL', _EOL)}(?![^\r\n])", re.I),
    re.compile(f"(?<![^\r\n]){_END}", re.I),
    # The first two line ends stay as they are written.
    re.compile(rf"({_EOL})[ \t]*({_EOL})(?:[ \t]*{_EOL})+|({_EOL})[ \t]+({_EOL})"),
    r"\1\2\3\4",
)


def _patterns_for(text: str) -> _Patterns:
    return _ALL_ENDS if "\r" in text else _NEWLINES


@dataclass(frozen=True)
class Cleaned:
    """A text after cleaning.

    Attributes:
        text: What is left.
        steps: Names of the steps that changed something, with commas.
        removed: (part, text) of what was cut out whole, such as ("header", ...).
        reason: Why the document is left out, "" if it is not.
    """

    text: str
    steps: str = ""
    removed: tuple[tuple[str, str], ...] = ()
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """Steps, in the order in which they are taken; none by default.

    Args:
        crlf: "\\r\\n" and single "\\r" become "\\n".
        nfc: Unicode normalisation form C.
        gutenberg: What stands before the START line and behind the END line of a Project Gutenberg text goes.
        paragraphs: One line end stays, two or more (blank lines) become one break of two.
        min_characters: Shorter texts are left out.
        min_printable: Least share of printable characters (line ends and tabs are), in [0, 1].

    Raises:
        ValueError: if a number is none or out of range.
        TypeError: for a step that is neither True nor False.
    """

    crlf: bool = False
    nfc: bool = False
    gutenberg: bool = False
    paragraphs: bool = False
    min_characters: int = 0
    min_printable: float = 0.0

    def __post_init__(self) -> None:
        for name in ("crlf", "nfc", "gutenberg", "paragraphs"):
            if not isinstance(value := getattr(self, name), bool):
                raise TypeError(f"`{name}` must be True or False, got {value!r}. Give a bool.")
        if isinstance(self.min_characters, bool) or not isinstance(self.min_characters, int) or self.min_characters < 0:
            raise ValueError(
                f"`min_characters` must be an integer of at least 0, got {self.min_characters!r}. Try 100."
            )
        if not is_share(self.min_printable):
            raise ValueError(f"`min_printable` must be in [0, 1], got {self.min_printable!r}. Try 0.95.")

    @classmethod
    def parse(cls, text: str) -> Cleaning:
        """Steps from words such as "crlf,nfc,gutenberg,paragraphs,min-chars:100,printable:0.95".

        Raises:
            ValueError: for an unknown step or a number that is none.
        """
        settings: dict[str, bool | int | float] = {}
        for word in filter(None, (part.strip() for part in text.split(","))):
            name, colon, value = word.partition(":")
            try:
                if name in ("crlf", "nfc", "gutenberg", "paragraphs") and not colon:
                    settings[name] = True
                elif name == "min-chars":
                    settings["min_characters"] = int(value)
                elif name == "printable":
                    settings["min_printable"] = float(value)
                else:
                    raise ValueError
            except ValueError:
                raise ValueError(
                    f"`clean` must be of crlf, nfc, gutenberg, paragraphs, min-chars:N, printable:SHARE, got {word!r}. "
                    "Write for example 'crlf,nfc,min-chars:100'."
                ) from None
        return cls(**settings)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return self != Cleaning()

    def __call__(self, text: str) -> Cleaned:
        """Clean one text.

        Example:
            >>> Cleaning(crlf=True, paragraphs=True)("a\\r\\n\\n\\nb").text
            'a\\n\\nb'
        """
        steps: list[str] = []
        removed: tuple[tuple[str, str], ...] = ()

        def take(name: str, changed: str) -> None:
            nonlocal text
            if changed != text:
                steps.append(name)
                text = changed

        if self.crlf and "\r" in text:
            take("crlf", text.replace("\r\n", "\n").replace("\r", "\n"))
        if self.nfc and not text.isascii():
            take("nfc", unicodedata.normalize("NFC", text))
        if self.gutenberg:
            body, removed = _without_gutenberg(text)
            take("gutenberg", body)
        if self.paragraphs:
            patterns = _patterns_for(text)
            take("paragraphs", patterns.breaks.sub(patterns.one_break, text))
        return Cleaned(text, ",".join(steps), removed, self._reason(text))

    def _reason(self, text: str) -> str:
        if not text.strip():
            return "empty after cleaning"
        if len(text) < self.min_characters:
            return f"{len(text)} characters, below {self.min_characters}"
        if self.min_printable:
            bad = sum(count for char, count in Counter(text).items() if not (char.isprintable() or char in "\n\r\t\f"))
            share = 1 - bad / len(text)
            if share < self.min_printable:
                return f"{share:.2f} of the characters printable, below {self.min_printable:.2f}"
        return ""


def is_share(value: Any) -> bool:
    """Whether it is a number in [0, 1]."""
    return not isinstance(value, bool) and isinstance(value, Real) and 0 <= float(value) <= 1


def is_code(path: str) -> bool:
    """Whether a path ends as files of code do, packed or not, or has one of the names that build files have."""
    name = path.rpartition("/")[2].lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    _, dot, suffix = name.rpartition(".")
    # Makefile.in and Dockerfile.dev too, but no suffix of prose.
    first = name.partition(".")[0] in ("dockerfile", "makefile") and suffix not in ("txt", "md", "rst")
    return name in _CODE_NAMES or first or (bool(dot) and f".{suffix}" in _CODE_SUFFIXES)


def _without_gutenberg(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    patterns = _patterns_for(text)
    start = patterns.start.search(text)
    first = start.end() if start else 0
    end = patterns.end.search(text, first)
    last = end.start() if end else len(text)
    parts = (("header", text[:first]), ("footer", text[last:]))
    removed = tuple((name, part) for name, part in parts if part)
    if not removed:
        return text, removed
    # The body ends as the lines around it do.
    line_end = _LINE_END.search(text, first) or _LINE_END.search(text)
    return text[first:last].strip("\r\n") + (line_end[0] if line_end else "\n"), removed
