"""Find the architecture of a GPU by its name on the box, in the driver or in a cloud.

Source: NVIDIA's list of GPUs by compute capability, developer.nvidia.com/cuda-gpus.
"""

from __future__ import annotations

import difflib
import re

from boltgen.arch import ARCHES, arch_named, arch_of_device
from boltgen.errors import UnknownArchError

# Names without memory size, socket, "Ti", "Super" or "Laptop GPU", which mark variants of a GPU.
_OF_DEVICE = {
    "sm_75": "T4 T4G; RTX 2060 2070 2080; TITAN RTX; RTX 3000 4000 5000 6000 8000",
    "sm_80": "A100 A100X A800 A30 A30X",
    "sm_86": (
        "A10 A10G A10M A16 A2 A40; RTX 3050 3060 3070 3080 3090; "
        "RTX A1000 A2000 A3000 A4000 A4500 A5000 A5500 A6000"
    ),
    "sm_89": (
        "L4 L20 L40 L40S L40G; RTX 4050 4060 4070 4080 4090; "
        "RTX 2000Ada 3500Ada 4000Ada 4500Ada 5000Ada 5880Ada 6000Ada"
    ),
    "sm_90": "H100 H200 H800 H20 GH200",
    "sm_100": "B100 B200 GB200",
    "sm_103": "B300 GB300",
    "sm_120": "RTX 5050 5060 5070 5080 5090; RTX PRO2000 PRO4000 PRO4500 PRO5000 PRO6000",
    "sm_121": "GB10; DGX SPARK",
}
# GPUs that users ask for although boltgen has no row for them.
_WITHOUT_ROW = {
    "sm_60": "P100",
    "sm_61": "P4 P40; GTX 1060 1070 1080; TITAN XP",
    "sm_70": "V100 GV100; TITAN V",
    "sm_72": "XAVIER",
    "sm_75 without tensor cores": "GTX 1650 1660",
    "sm_87": "ORIN; JETSON ORIN",
    "sm_110": "THOR; JETSON THOR",
}
_VENDOR = re.compile(
    r"\b(NVIDIA|GEFORCE|TESLA|QUADRO|TENSOR|CORE|GPU|GRAPHICS|LAPTOP|MOBILE|MAX-?Q|GENERATION|"
    r"BLACKWELL|WORKSTATION|SERVER|EDITION|SXM\d?|PCIE?|NVL|HBM\d\w?|AGX|NANO|NX|TI|SUPER)\b"
    r"|\b\d+ ?GB\b"
)
_VARIANT = re.compile(r"(TI|SUPER|D|SXM\d?|PCIE|NVL)+$")


def _named(text: str) -> dict[str, str]:
    """Return the names in a row of the table by their plain form.

    A series in front of a group, such as RTX, belongs to all names of the group.
    """
    names = {}
    for group in text.split("; "):
        first, *others = group.split()
        series = first if first in {"RTX", "GTX", "TITAN", "DGX", "JETSON"} else ""
        for name in others if series else (first, *others):
            shown = " ".join(filter(None, (series, name)))
            names[_plain(shown)] = shown
            # A number in thousands may be a GeForce, Quadro or Ada card, so its series is required.
            if series in {"RTX", "GTX"} and (name.startswith("A") or not name.endswith("000")):
                names.setdefault(_plain(name), shown)
    return names


def _plain(name: str) -> str:
    """Return a name in upper case without spaces, vendor and punctuation."""
    spaced = re.sub(r"[-_/]", " ", name.upper())
    return re.sub(r"\W", "", _VENDOR.sub(" ", _VENDOR.sub(" ", spaced)))


_DEVICES = {
    plain: (device, shown)
    for table in (_WITHOUT_ROW, _OF_DEVICE)
    for device, text in table.items()
    for plain, shown in _named(text).items()
}


def arch_of_gpu(name: str) -> str | None:
    """Return the row with the most features of a GPU: "sm_90a" for "NVIDIA H100 PCIe".

    Return None if the name is unknown.

    Raises:
        UnknownArchError: the GPU is known, but boltgen makes no kernels for it.
    """
    plain = _plain(name)
    found = _DEVICES.get(plain) or _DEVICES.get(_VARIANT.sub("", plain))
    if found is None:
        return None
    device, shown = found
    if device not in ARCHES:
        raise UnknownArchError(
            f"{shown} is a GPU of {device}, for which boltgen makes no kernels: it knows "
            f"{', '.join(ARCHES)}"
        )
    return arch_of_device(device).name


def require_arch(name: str) -> str:
    """Return the row for the name of a row, such as `sm_80`, or of a GPU.

    Raises:
        UnknownArchError: nothing has that name; the message proposes a similar GPU, if there is
            one.
    """
    if name in ARCHES:
        return name
    if (found := arch_of_gpu(name)) is not None:
        return found
    near = difflib.get_close_matches(_plain(name), _DEVICES, n=1, cutoff=0.7)
    if near and not re.match(r"(sm|compute|\d)", name.lower()):
        device, shown = _DEVICES[near[0]]
        if device in ARCHES:
            raise UnknownArchError(
                f"unknown GPU or arch {name!r}; did you mean {shown!r} "
                f"({arch_of_device(device).name})? Known: {', '.join(ARCHES)}, and GPUs by name"
            )
    return arch_named(name).name
