"""`python -m models`."""

from pathlib import Path

import onnx
import pytest

from models.__main__ import main


def test_writes_the_model_and_says_what_it_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a0.onnx"
    assert main(["repvgg_a0", "--batch", "2", "--image-size", "32", "-o", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "8,309,384 parameters" in printed
    assert "input input [2, 3, 32, 32]" in printed
    assert "output logits [2, 1000]" in printed
    onnx.checker.check_model(path)


def test_help_lists_models_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    assert "vgg16" in printed
    assert "python -m models resnet50 --batch 32 -o resnet50.onnx" in printed


def test_an_option_of_another_model_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "resnet18.onnx"
    with pytest.raises(SystemExit) as failure:
        main(["resnet18", "--layers", "2", "-o", str(path)])
    assert failure.value.code == 2
    assert "resnet18 has no option layers; its options are batch" in capsys.readouterr().err
    assert not path.exists()
