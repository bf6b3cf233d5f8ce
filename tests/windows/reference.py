"""Windows listed token by token, slow and obvious, for tests of the fast way."""

import itertools
from dataclasses import dataclass


@dataclass
class Token:
    """One token of a stream: its id, the store position, the document, and whether text begins anew here."""

    id: int
    at: int
    document: int
    piece: int
    boundary: bool


@dataclass
class SlowWindow:
    """What one window is expected to be; lists of seq_len entries but for `document_ids` and `positions`."""

    start: int
    document: int
    inputs: list
    labels: list
    document_ids: list
    positions: list


def best_fit_bins(lengths, capacity):
    """Bins of item numbers by best fit, longest first."""
    bins = []
    for item in sorted(range(len(lengths)), key=lambda item: (-lengths[item], item)):
        fitting = [bin for bin in bins if sum(lengths[i] for i in bin) + lengths[item] <= capacity]
        if fitting:
            min(fitting, key=lambda bin: capacity - sum(lengths[i] for i in bin)).append(item)
        else:
            bins.append([item])
    return sorted(sorted(bin) for bin in bins)


def streams_of(texts, groups, config, paragraph_starts=()):
    """Lists of `Token`, in the order of the store's groups."""
    documents, at = [], 0
    for number, text in enumerate(texts):
        tokens = [
            Token(id, at + place, number, number, place == 0 or at + place in paragraph_starts)
            for place, id in enumerate(text)
        ]
        at += len(text)
        if len(text) >= max(config.min_length, 1):
            documents.append(tokens)
    names = list(dict.fromkeys(groups))
    if config.pack == "none":
        return documents
    by_group = [[tokens for tokens in documents if groups[tokens[0].document] == name] for name in names]
    if config.pack == "concat":
        return [[token for tokens in own for token in tokens] for own in by_group if own]
    width, heads, shared, piece = config.seq_len, [], [], 10**6
    for own in by_group:
        rests = []
        for tokens in own:
            whole = len(tokens) // width * width
            if whole:
                heads.append(tokens[: whole + 1])
            if tokens[whole:]:
                piece += 1
                rests.append([Token(t.id, t.at, t.document, piece, t.boundary) for t in tokens[whole:]])
        for bin in best_fit_bins([len(rest) for rest in rests], width):
            shared.append([token for item in bin for token in rests[item]])
    return heads + shared


def starts_of(stream, config):
    """(start, whether the tail added it) of each window of a stream, moved to boundaries."""
    width, stride, length = config.seq_len, config.step, len(stream)
    if config.pack == "best_fit":
        return [(start, False) for start in range(0, length, width) if start == 0 or start + 2 <= length]
    last_full = length - width - 1
    plain = list(range(0, last_full + 1, stride))
    tail = []
    if config.tail == "cover" and plain and plain[-1] != last_full:
        tail = [last_full]
    if config.tail == "pad":
        following = plain[-1] + stride if plain else 0
        if following + 2 <= length and (not plain or plain[-1] < last_full):
            tail = [following]
    moved = list(plain)
    if config.align != "none":
        boundaries = [place for place, token in enumerate(stream) if token.boundary and place <= last_full]

        def nearest(start):
            near = [place for place in boundaries if 2 * abs(place - start) <= stride]
            return min(near, key=lambda place: (abs(place - start), place), default=start)

        for number, start in enumerate(plain[1:], 1):
            moved[number] = nearest(start)
            shared = number + 1 < len(plain) and nearest(plain[number + 1]) == moved[number]
            if shared:
                moved[number] = start
    return [(start, False) for start in moved] + [(start, True) for start in tail]


def slow_windows(texts, groups, config, eos, paragraph_starts=()):
    """All windows of `texts` under `config`, without random offsets, dropout, shuffling and thinning."""
    windows = []
    for stream in streams_of(texts, groups, config, paragraph_starts):
        stream = stream[config.offset :]
        before = None
        for start, _ in starts_of(stream, config):
            part = stream[start : start + config.seq_len + 1]
            labels = [token.id for token in part[1:]]
            if config.mask_cross_document_targets:
                labels = [-100 if one.piece != other.piece else other.id for one, other in itertools.pairwise(part)]
            if config.mask_repeated_targets and before is not None:
                repeated = min(max(before + config.seq_len - start, 0), len(labels) - 1)
                labels = [-100] * repeated + labels[repeated:]
            before = start
            shown = part[: config.seq_len] if config.pack == "best_fit" else part[: len(labels)]
            pieces = list(dict.fromkeys(token.piece for token in shown))
            places, seen = [], {}
            for place, token in enumerate(shown):
                places.append(place - seen.setdefault(token.piece, place))
            windows.append(
                SlowWindow(
                    start=part[0].at,
                    document=part[0].document,
                    inputs=[token.id for token in shown] + [eos] * (config.seq_len - len(shown)),
                    labels=labels + [-100] * (config.seq_len - len(labels)),
                    document_ids=[pieces.index(token.piece) for token in shown],
                    positions=places,
                )
            )
    return windows
