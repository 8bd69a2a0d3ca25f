"""The steps of recurrent layers."""
