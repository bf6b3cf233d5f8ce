import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import adaptive_sampling as ads

ROOT = Path(__file__).parents[1]
FOLDERS = ["ab", "callbacks", "corpus", "neighbors", "sampling", "weights", "windows"]


def run_python(code, cwd=None):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, timeout=120)


def test_importing_the_package_loads_neither_lightning_nor_faiss():
    code = """
import sys, adaptive_sampling as ads
ads.AdaptiveSampler(3, seed=0).draw(3); ads.WeightPolicy; ads.TokenStore; ads.WindowDataset
print([name for name in ("lightning", "faiss", "tokenizers", "pyarrow") if name in sys.modules])
"""
    result = run_python(code)
    assert result.stdout.strip() == "[]", result.stderr


def test_no_module_of_the_package_loads_faiss_before_it_is_needed():
    folders = ", ".join(f"adaptive_sampling.{folder}" for folder in FOLDERS)
    result = run_python(f"import sys, {folders}\nprint('faiss' in sys.modules)")
    assert result.stdout.strip() == "False", result.stderr


def test_text_is_prepared_without_torch_which_would_cost_every_worker_200_megabytes(tmp_path):
    (tmp_path / "text.jsonl").write_text("".join(f'{{"text": "{"words " * 60}{n}"}}\n' for n in range(40)))
    code = """
import sys
from adaptive_sampling.corpus import Source, prepare
prepare([Source("text", "text.jsonl")], "out", vocab_size=270)
print([name for name in ("torch", "lightning") if name in sys.modules])
"""
    result = run_python(code, cwd=tmp_path)
    assert result.stdout.strip() == "[]", result.stderr
    assert (tmp_path / "out" / "train").is_dir()


def test_ranks_of_a_plain_torch_loop_need_no_lightning():
    code = """
import sys
sys.modules.update(lightning=None, faiss=None)
from torch.utils.data import DataLoader
import adaptive_sampling as ads
whole = ads.AdaptiveSampler(8, seed=0).draw(16).tolist()
for rank in range(2):
    sampler = ads.AdaptiveSampler(8, seed=0, rank=rank, world_size=2)
    loader = DataLoader(ads.with_ids(list(range(8))), batch_size=2, sampler=sampler)
    assert [i for _ in range(2) for _, ids in loader for i in ids.tolist()] == whole[rank::2]
print("done")
"""
    result = run_python(code)
    assert result.stdout.strip() == "done", result.stderr


@pytest.mark.parametrize("name", ads.__all__)
def test_every_public_name_resolves_and_is_documented(name):
    assert getattr(ads, name).__doc__
    assert name in dir(ads)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ads.nothing


def test_the_callbacks_link_leads_to_the_package_and_refuses_its_own_name():
    assert (ROOT / "callbacks").is_symlink()
    assert (ROOT / "callbacks").resolve() == ROOT / "adaptive_sampling" / "callbacks"
    result = run_python("import callbacks", cwd=ROOT)
    assert result.returncode == 1
    assert "from adaptive_sampling.callbacks import AdaptiveSampling" in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_only_re_export_and_document_what_they_export(folder):
    module = importlib.import_module(f"adaptive_sampling.{folder}")
    assert module.__doc__
    for name in module.__all__:
        assert getattr(module, name).__doc__, name
