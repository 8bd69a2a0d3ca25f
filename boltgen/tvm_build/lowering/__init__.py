"""Lower and schedule TVM's part of a model."""
