"""A small inference engine: paged key/value cache, continuous batching, captured decode steps.

``engine`` drives; ``scheduler`` decides which sequences run; ``block_manager`` hands out cache
blocks; ``model_runner`` runs the unmodified transformers model; ``attention`` connects the two.
"""
