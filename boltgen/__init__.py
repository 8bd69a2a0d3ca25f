"""CUTLASS template search and code generation for TVM."""
