"""What a bundle's libraries need of the system where they are loaded."""

from __future__ import annotations

from pathlib import Path

from benchmarks.gpu.portable import OLDEST, Needs, complaints, libraries_of, newest, parsed

SAID = """\
 0x0000000000000001 (NEEDED)             Shared library: [libcudart.so.13]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x000000000000000e (SONAME)             Library soname: [libone.so]

Version symbols section '.gnu.version' contains 2 entries:
  000:   0 (*local*)       2 (GLIBC_2.2.5)

Version definition section '.gnu.version_d' contains 1 entry:
  000000: Rev: 1  Flags: BASE  Index: 1  Cnt: 1  Name: ONE_9.9
  0x0010:   Name: ONE_9.9

Version needs section '.gnu.version_r' contains 2 entries:
  000000: Version: 1  File: libcudart.so.13  Cnt: 1
  0x0010:   Name: libcudart.so.13  Flags: none  Version: 5
  0x0020: Version: 1  File: libc.so.6  Cnt: 3
  0x0030:   Name: GLIBC_2.9  Flags: none  Version: 4
  0x0040:   Name: GLIBC_2.14  Flags: none  Version: 3
  0x0050:   Name: GLIBC_2.2.5  Flags: none  Version: 2
"""


def test_the_newest_of_each_family_is_what_counts():
    """As numbers: 2.14 is newer than 2.9."""
    needs = parsed(SAID)
    assert needs == Needs(frozenset(("libcudart.so.13", "libc.so.6")), {"GLIBC": (2, 14)})


def test_a_feature_of_the_loader_is_of_the_release_that_brought_it():
    assert parsed(SAID.replace("GLIBC_2.9", "GLIBC_ABI_DT_RELR")).versions == {"GLIBC": (2, 36)}


def test_what_the_oldest_system_has_not_is_named():
    needs = Needs(
        frozenset(("libc.so.6", "libcudart.so.13", "libgomp.so.1")),
        {"GLIBC": (2, 38), "GLIBCXX": (3, 4, 30), "OTHER": (1,)},
    )
    runtime = Needs(frozenset(("libc.so.6",)), {"GLIBC": (2, 17)})
    assert complaints({"kernels/a.so.xz": needs, "libcudart.so.13": runtime}) == [
        "kernels/a.so.xz needs GLIBC_2.38, which Ubuntu 22.04 has not",
        "kernels/a.so.xz needs OTHER_1, which Ubuntu 22.04 has not",
        "kernels/a.so.xz needs libgomp.so.1, which neither bundle nor driver bring",
    ]


def test_a_bundle_can_be_loaded_on_the_oldest_system(bundle: Path):
    """And it brings CUDA's runtime: a machine has one only where PyTorch is built for CUDA 13."""
    libraries = libraries_of(bundle)
    assert complaints(libraries) == [], newest(libraries.values())
    assert newest(libraries.values()).keys() <= OLDEST.keys()
    kernels = [needs for name, needs in libraries.items() if name.startswith("kernels/sm_80/")]
    assert kernels
    assert all("libcudart.so.13" in needs.libraries for needs in kernels)
    assert {"libcudart.so.13", "libboltgen_profiler.so", "tvm/libtvm_runtime.so.xz"} <= set(
        libraries
    )
