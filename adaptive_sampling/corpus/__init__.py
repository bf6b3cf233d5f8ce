"""Files become documents, documents become token stores on disk.

`prepare` does the whole way: read, drop exact duplicates, split, tokenize, store. Each stage also stands alone.
Importing this folder needs neither pyarrow nor tokenizers; what uses them says which extra to install.
"""

from adaptive_sampling.corpus.embedded import embedded_documents
from adaptive_sampling.corpus.prepare import prepare
from adaptive_sampling.corpus.readers import Document, read_text_files
from adaptive_sampling.corpus.store import TokenStore
from adaptive_sampling.corpus.tokenize import load_tokenizer, train_tokenizer

__all__ = [
    "Document",
    "TokenStore",
    "embedded_documents",
    "load_tokenizer",
    "prepare",
    "read_text_files",
    "train_tokenizer",
]
