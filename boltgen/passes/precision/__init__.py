"""Convert an imported model to a form for kernels: FP16 and NHWC inside, batch norms folded.

IR-neutral: one walk, with one rule per operator, that knows all layouts and dtypes at once. Weights
end up as constants in their final form, permutations meet and vanish, reductions stay in FP32. A
`Dialect` writes the operators of the IR.
"""
