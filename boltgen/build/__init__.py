"""From text to objects: toolchain, compiler, cache."""
