"""Finding: embedders, the vector index, answer stores and the semantic cache over them."""
