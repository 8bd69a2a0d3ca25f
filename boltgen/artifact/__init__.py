"""The saved model: metadata, signature and check results."""
