"""Quantise an ONNX model: observe tensors on samples, choose layers, write a QDQ model.

Arrow: `model` to `layers` to `observers` to `smoothing` to `qdq`; `quantise` chooses the layers by
error (`errors`) and predicted time (`gains`).
"""
