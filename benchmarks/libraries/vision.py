"""Models of transformers and timm that read images, the texts beside them, and sounds."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from benchmarks.libraries.samples import (
    BATCH,
    VOCABULARY,
    Called,
    LibraryModel,
    Sample,
    image,
    of_transformers,
    words,
)

_SIDE = 64
_PATCHES_SIDE = 32
_PATCHES_SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "image_size": _PATCHES_SIDE,
    "patch_size": 8,
}
_WINDOWS_SIZES = {
    "image_size": _SIDE,
    "patch_size": 4,
    "embed_dim": 32,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}
_SEGFORMER_SIZES = {
    "num_encoder_blocks": 2,
    "depths": [1, 1],
    "hidden_sizes": [32, 64],
    "num_attention_heads": [1, 2],
    "patch_sizes": [7, 3],
    "strides": [4, 2],
    "sr_ratios": [2, 1],
    "mlp_ratios": [2, 2],
}
_CONVNEXT_SIZES = {
    "image_size": _SIDE,
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [32, 64, 64, 64],
}
_CLIP_TEXT_SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 32,
    "eos_token_id": 2,
}
_MELS, _FRAMES = 16, 64
_WHISPER_SIZES = {
    "d_model": 64,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_layers": 1,  # the decoder is made, too, and not run
    "decoder_attention_heads": 4,
    "num_mel_bins": _MELS,
    "max_source_positions": _FRAMES // 2,
}


def _of_image(
    name: str, family: str, side: int, sizes: dict[str, Any], **settings: Any
) -> LibraryModel:
    def build() -> Sample:
        module = of_transformers(family, sizes | settings)
        return Sample(Called(module, ("pixel_values",)), (image(side),))

    return LibraryModel(name, "transformers", build)


def _clip_text() -> Sample:
    module = of_transformers("CLIPText", _CLIP_TEXT_SIZES)
    return Sample(Called(module, ("input_ids",)), (words(),))


def _whisper_encoder() -> Sample:
    module = of_transformers("Whisper", _WHISPER_SIZES).encoder
    return Sample(Called(module, ("input_features",)), (torch.randn(BATCH, _MELS, _FRAMES),))


def _of_timm(name: str, architecture: str, side: int = _SIDE, **settings: Any) -> LibraryModel:
    def build() -> Sample:
        timm = importlib.import_module("timm")
        module = timm.create_model(architecture, pretrained=False, **settings).eval()
        return Sample(module, (image(side),))

    return LibraryModel(name, "timm", build)


VISION = (
    LibraryModel("whisper-encoder", "transformers", _whisper_encoder),
    _of_image("vit", "ViT", _PATCHES_SIDE, _PATCHES_SIZES),
    _of_image("dinov2", "Dinov2", _PATCHES_SIDE, _PATCHES_SIZES),
    _of_image("beit", "Beit", _PATCHES_SIDE, _PATCHES_SIZES, use_relative_position_bias=True),
    LibraryModel("clip-text", "transformers", _clip_text),
    _of_image("clip-vision", "CLIPVision", _PATCHES_SIDE, _PATCHES_SIZES),
    _of_image("siglip-vision", "SiglipVision", _PATCHES_SIDE, _PATCHES_SIZES),
    _of_image("swin", "Swin", _SIDE, _WINDOWS_SIZES),
    _of_image("swin-v2", "Swinv2", _SIDE, _WINDOWS_SIZES),
    _of_image("segformer", "Segformer", _SIDE, _SEGFORMER_SIZES),
    _of_image("convnext", "ConvNext", _SIDE, _CONVNEXT_SIZES),
    _of_timm("timm-vit", "vit_tiny_patch16_224", img_size=_SIDE, depth=2),
    _of_timm("timm-swin", "swin_tiny_patch4_window7_224", 112, img_size=112, depths=(2, 2, 2, 2)),
    _of_timm("timm-eva02", "eva02_tiny_patch14_224", 56, img_size=56, depth=2),
    _of_timm("timm-resnet18", "resnet18"),
)
