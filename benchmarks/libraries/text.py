"""Models of transformers that read text: encoders, decoders, and both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.libraries.samples import (
    LENGTH,
    VOCABULARY,
    Called,
    LibraryModel,
    Sample,
    of_transformers,
    padded_at_either_end,
    padded_on_the_left,
    words,
)

_LIBRARY = "transformers"
# A quarter of a head's usual width, in four heads, and two layers: all that a layer does, quickly.
_SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": VOCABULARY,
}
# Two heads of keys for four of queries, as all of Llama's kind can have.
_LLAMA_SIZES = {
    **_SIZES,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_DISTILBERT_SIZES = {
    "dim": 64,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 128,
    "vocab_size": VOCABULARY,
}
_GPT2_SIZES = {
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "vocab_size": VOCABULARY,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_BLOOM_SIZES = {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY}
_FALCON_SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": VOCABULARY,
    "alibi": False,
}
_OPT_SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "ffn_dim": 128,
    "vocab_size": VOCABULARY,
    "word_embed_proj_dim": 64,
    "max_position_embeddings": 64,
}
_T5_SIZES = {
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_layers": 2,
    "num_heads": 4,
    "vocab_size": VOCABULARY,
    "decoder_start_token_id": 0,
}
_BART_SIZES = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
}
_DEBERTA_SIZES = {
    **_SIZES,
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "max_position_embeddings": 64,
}
_MODERNBERT_SIZES = {
    **_SIZES,
    "global_attn_every_n_layers": 2,
    "local_attention": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}


def _masked(module: Any, mask: Any, **constants: Any) -> Sample:
    """A model of text with a mask: its padding is not judged."""
    called = Called(module, ("input_ids", "attention_mask"), **constants)
    return Sample(called, (words(), mask), real=mask.bool())


def _encoder(
    name: str, family: str, sizes: dict[str, Any], part: str = "Model", **settings: Any
) -> LibraryModel:
    def build() -> Sample:
        return _masked(of_transformers(family, sizes | settings, part), padded_at_either_end())

    return LibraryModel(name, _LIBRARY, build)


def _decoder(
    name: str,
    family: str,
    sizes: dict[str, Any],
    mask: Callable[[], Any] | None = None,
    **settings: Any,
) -> LibraryModel:
    def build() -> Sample:
        module = of_transformers(family, sizes | settings)
        if mask is not None:
            return _masked(module, mask(), use_cache=False)
        return Sample(Called(module, ("input_ids",), use_cache=False), (words(),))

    return LibraryModel(name, _LIBRARY, build)


def _encoder_and_decoder(name: str, family: str, sizes: dict[str, Any]) -> LibraryModel:
    """The encoder's tokens are padded, the decoder's are all real: all of the output counts."""

    def build() -> Sample:
        keywords = ("input_ids", "attention_mask", "decoder_input_ids")
        module = Called(of_transformers(family, sizes), keywords, use_cache=False)
        return Sample(module, (words(), padded_at_either_end(), words(LENGTH // 3)))

    return LibraryModel(name, _LIBRARY, build)


TEXT = (
    _encoder("bert", "Bert", _SIZES),
    _encoder("roberta", "Roberta", _SIZES),
    _encoder("distilbert", "DistilBert", _DISTILBERT_SIZES),
    _encoder("albert", "Albert", _SIZES, embedding_size=32),
    _encoder("electra", "Electra", _SIZES, embedding_size=32),
    _encoder("mpnet", "MPNet", _SIZES),
    _encoder("modernbert", "ModernBert", _MODERNBERT_SIZES),
    _encoder("deberta-v2", "DebertaV2", _DEBERTA_SIZES),
    _encoder("t5-encoder", "T5", _T5_SIZES, "EncoderModel"),
    _decoder("gpt2", "GPT2", _GPT2_SIZES),
    _decoder("gpt2-left-padded", "GPT2", _GPT2_SIZES, padded_on_the_left),
    _decoder("llama", "Llama", _LLAMA_SIZES),
    _decoder("llama-left-padded", "Llama", _LLAMA_SIZES, padded_on_the_left),
    _decoder("mistral-window", "Mistral", _LLAMA_SIZES, sliding_window=7),
    _decoder("qwen2", "Qwen2", _LLAMA_SIZES),
    _decoder("qwen3", "Qwen3", _LLAMA_SIZES, head_dim=16),
    _decoder("gemma", "Gemma", _LLAMA_SIZES, head_dim=16),
    _decoder("gemma2-window", "Gemma2", _LLAMA_SIZES, head_dim=16, sliding_window=7),
    _decoder("phi3", "Phi3", _LLAMA_SIZES),
    _decoder("falcon", "Falcon", _FALCON_SIZES),
    _decoder("gpt-neox", "GPTNeoX", _SIZES),
    _decoder("bloom", "Bloom", _BLOOM_SIZES),
    _decoder("opt", "OPT", _OPT_SIZES),
    _encoder_and_decoder("t5", "T5", _T5_SIZES),
    _encoder_and_decoder("bart", "Bart", _BART_SIZES),
)
