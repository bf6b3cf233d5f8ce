"""The wheel holds the package and nothing else, and works from another folder."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_wheel_holds_only_the_package_and_works_from_another_folder(tmp_path):
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        tops = {name.split("/")[0] for name in names}
        archive.extractall(tmp_path / "site")
    assert {top for top in tops if not top.endswith(".dist-info")} == {"adaptive_sampling"}
    assert "adaptive_sampling/py.typed" in names
    shipped = {name for name in names if name.endswith(".py")}
    own = {str(path.relative_to(ROOT)) for path in (ROOT / "adaptive_sampling").rglob("*.py")}
    assert shipped == own
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "import adaptive_sampling as ads\n"
        "from adaptive_sampling.callbacks import AdaptiveSampling\n"
        "print(ads.__file__, sorted(ads.AdaptiveSampler(3, seed=0)))"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.stdout.split(maxsplit=1) == [
        str(tmp_path / "site" / "adaptive_sampling" / "__init__.py"),
        "[0, 1, 2]\n",
    ], result.stderr
