"""Models of diffusers: one removes noise from an image's code, one decodes the code."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from benchmarks.libraries.samples import BATCH, Called, LibraryModel, Sample, image

_CODE_SIDE = 16
_CODE_CHANNELS = 4
_TEXT_LENGTH, _TEXT_WIDTH = 10, 32
_TWO_STEPS = (3.0, 17.0)


def _of_diffusers(name: str, **settings: Any) -> Any:
    return getattr(importlib.import_module("diffusers"), name)(**settings).eval()


def _code() -> Any:
    return image(_CODE_SIDE, _CODE_CHANNELS)


def _text() -> Any:
    return torch.randn(BATCH, _TEXT_LENGTH, _TEXT_WIDTH)


def _stable_diffusion_unet() -> Sample:
    module = _of_diffusers(
        "UNet2DConditionModel",
        sample_size=_CODE_SIDE,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=_TEXT_WIDTH,
        attention_head_dim=8,
        norm_num_groups=8,
    )
    called = Called(module, ("sample", "timestep", "encoder_hidden_states"))
    return Sample(called, (_code(), torch.tensor(_TWO_STEPS), _text()))


def _dit() -> Sample:
    module = _of_diffusers(
        "DiTTransformer2DModel",
        sample_size=_CODE_SIDE,
        patch_size=2,
        in_channels=_CODE_CHANNELS,
        out_channels=2 * _CODE_CHANNELS,
        num_layers=2,
        num_attention_heads=4,
        attention_head_dim=16,
        norm_num_groups=8,
    )
    called = Called(module, ("hidden_states", "timestep", "class_labels"))
    return Sample(called, (_code(), torch.tensor(_TWO_STEPS).long(), torch.tensor([1, 2])))


def _vae_decoder() -> Sample:
    module = _of_diffusers(
        "AutoencoderKL",
        sample_size=2 * _CODE_SIDE,
        block_out_channels=(32, 64),
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        norm_num_groups=8,
    )
    return Sample(Called(module, ("z",), method="decode"), (_code(),))


def _stable_diffusion_3() -> Sample:
    module = _of_diffusers(
        "SD3Transformer2DModel",
        sample_size=_CODE_SIDE,
        patch_size=2,
        in_channels=_CODE_CHANNELS,
        out_channels=_CODE_CHANNELS,
        num_layers=2,
        num_attention_heads=4,
        attention_head_dim=16,
        joint_attention_dim=_TEXT_WIDTH,
        caption_projection_dim=64,
        pooled_projection_dim=_TEXT_WIDTH,
        pos_embed_max_size=_CODE_SIDE,
    )
    keywords = ("hidden_states", "encoder_hidden_states", "pooled_projections", "timestep")
    pooled = torch.randn(BATCH, _TEXT_WIDTH)
    return Sample(Called(module, keywords), (_code(), _text(), pooled, torch.tensor(_TWO_STEPS)))


DIFFUSION = (
    LibraryModel("stable-diffusion-unet", "diffusers", _stable_diffusion_unet),
    LibraryModel("dit", "diffusers", _dit),
    LibraryModel("vae-decoder", "diffusers", _vae_decoder),
    LibraryModel("stable-diffusion-3", "diffusers", _stable_diffusion_3),
)
