"""Compile generated text to objects: toolchain, compilers and cache."""
