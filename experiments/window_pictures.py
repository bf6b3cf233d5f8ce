"""What settings make of the same few documents, as pictures: `python -m experiments.window_pictures`."""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path

import numpy as np

from adaptive_sampling import TokenStore, WindowConfig, WindowDataset
from adaptive_sampling._files import atomic_writer

LENGTHS = (15, 5, 10, 4, 8)
SEQ_LEN = 6
COLOURS = ("#3b6ea5", "#c2410c", "#4d7c0f", "#7c3aed", "#b45309")
CELL, LEFT, ROW = 14, 210, 11
SETTINGS: tuple[tuple[str, WindowConfig], ...] = (
    ("tail='drop' (the default)", WindowConfig(SEQ_LEN)),
    ("tail='cover'", WindowConfig(SEQ_LEN, tail="cover")),
    ("tail='pad'", WindowConfig(SEQ_LEN, tail="pad")),
    ("stride=3", WindowConfig(SEQ_LEN, 3)),
    ("stride=3, masked repeats", WindowConfig(SEQ_LEN, 3, mask_repeated_targets=True)),
    ("stride=9 leaves gaps", WindowConfig(SEQ_LEN, 9)),
    ("pack='concat'", WindowConfig(SEQ_LEN, pack="concat")),
    ("concat, align='document'", WindowConfig(SEQ_LEN, pack="concat", align="document")),
    ("concat, random_offset, epoch 0", WindowConfig(SEQ_LEN, pack="concat", random_offset=True)),
)


def _store(folder: str) -> TokenStore:
    ids = iter(range(1, sum(LENGTHS) + 1))
    documents = [[next(ids) for _ in range(length - 1)] for length in LENGTHS]
    return TokenStore.write(Path(folder) / "store", documents, vocab_size=sum(LENGTHS) + 1, eos_id=0)


def _dataset(store: TokenStore, config: WindowConfig) -> WindowDataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return WindowDataset(store, config)


def _page(width: float, height: float, parts: list[str]) -> str:
    head = f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="12" fill="#1f2933"'
    frame = [f'<svg xmlns="http://www.w3.org/2000/svg" {head}>', '<rect width="100%" height="100%" fill="#fff"/>']
    return "\n".join([*frame, *parts, "</svg>"]) + "\n"


def along_text(store: TokenStore) -> str:
    """One block per setting: the documents as a line, and below it a bar per window with its targets filled."""
    parts, y = [], 26.0
    documents = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    for name, config in SETTINGS:
        dataset = _dataset(store, config)
        rows_of_bars = SEQ_LEN // config.step + 1 if config.step < SEQ_LEN else 2
        parts.append(f'<text x="12" y="{y + 9:.0f}">{name}</text>')
        for at, document in enumerate(documents.tolist()):
            parts.append(
                f'<rect x="{LEFT + at * CELL}" y="{y:.0f}" width="{CELL - 1}" height="10" fill="{COLOURS[document]}"/>'
            )
        y += 16
        starts, places = dataset.starts(), dataset.places(np.arange(len(dataset)))
        rows, firsts, ends = dataset.target_spans()
        for window, start in enumerate(starts.tolist()):
            top = y + (window % rows_of_bars) * ROW
            width = (int(places.targets[window]) + 1) * CELL
            parts.append(
                f'<rect x="{LEFT + start * CELL}" y="{top:.0f}" width="{width - 1}" height="8" fill="#fff" '
                'stroke="#6b7785"/>'
            )
            for first, end in zip(firsts[rows == window].tolist(), ends[rows == window].tolist(), strict=True):
                parts.append(
                    f'<rect x="{LEFT + first * CELL}" y="{top:.0f}" width="{(end - first) * CELL - 1}" height="8" '
                    'fill="#6b7785"/>'
                )
        y += rows_of_bars * ROW + 20
    note = "Colours: documents, EOS included. Bars: tokens that a window reads; grey: those that are its targets."
    parts.append(f'<text x="12" y="{y:.0f}" fill="#6b7785">{note}</text>')
    return _page(LEFT + len(documents) * CELL + 12, y + 12, parts)


def shared_windows(store: TokenStore) -> str:
    """The windows of pack="best_fit", token by token, coloured by document."""
    dataset = _dataset(store, WindowConfig(8, pack="best_fit"))
    batch = dataset.read(np.arange(len(dataset)))
    ends = np.asarray(store.document_ends)
    parts = ['<text x="12" y="20">pack="best_fit", seq_len=8: whole documents share windows</text>']
    for window, row in enumerate(batch["input_ids"]):
        y = 32 + window * 26
        parts.append(f'<text x="12" y="{y + 13}">window {window}</text>')
        filled = int(dataset.places(np.array([window])).inputs[0])
        start = int(dataset.starts([window])[0])
        for column, token in enumerate(row.tolist()):
            if column >= filled:
                colour, word = "#e5e7eb", "pad"
            else:
                inner = [value for value in row[: column + 1].tolist() if value]
                at = inner[-1] if inner else start
                document = int(np.searchsorted(ends - np.arange(1, len(ends) + 1), at, side="left"))
                colour, word = COLOURS[document], "EOS" if token == 0 else str(token)
            parts.append(
                f'<rect x="{90 + column * 40}" y="{y}" width="38" height="20" fill="{colour}" fill-opacity="0.85"/>'
                f'<text x="{109 + column * 40}" y="{y + 14}" text-anchor="middle" '
                f'fill="{"#6b7785" if word == "pad" else "#fff"}">{word}</text>'
            )
    return _page(90 + 8 * 40 + 12, 32 + len(dataset) * 26 + 8, parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        store = _store(folder)
        for name, picture in (("windows.svg", along_text(store)), ("shared_windows.svg", shared_windows(store))):
            with atomic_writer(out / name, "w") as file:
                file.write(picture)
            print(out / name)


if __name__ == "__main__":
    main()
