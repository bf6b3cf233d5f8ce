"""Files become documents, documents become token stores on disk.

`prepare` does the whole way: read, decode, clean, find duplicates, split, tokenize, store. Each stage also
stands alone. Importing this folder needs neither pyarrow nor tokenizers; what uses them says which extra to
install.
"""

from adaptive_sampling.corpus.clean import Cleaning
from adaptive_sampling.corpus.contamination import audit_contamination
from adaptive_sampling.corpus.embedded import embedded_documents
from adaptive_sampling.corpus.imports import import_megatron, import_nanogpt
from adaptive_sampling.corpus.prepare import prepare
from adaptive_sampling.corpus.readers import Document, read_text_files
from adaptive_sampling.corpus.sources import Source
from adaptive_sampling.corpus.store import TokenStore
from adaptive_sampling.corpus.tokenize import byte_tokenizer, load_tokenizer, train_tokenizer

__all__ = [
    "Cleaning",
    "Document",
    "Source",
    "TokenStore",
    "audit_contamination",
    "byte_tokenizer",
    "embedded_documents",
    "import_megatron",
    "import_nanogpt",
    "load_tokenizer",
    "prepare",
    "read_text_files",
    "train_tokenizer",
]
